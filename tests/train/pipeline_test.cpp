// Ranks that hold different layers: steps, checkpoints and the cut.
#include <array>
#include <map>

#include "support/cut_units.h"
#include "support/rank_values.h"
#include "support/sharing.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/comm/thread.h"
#include "nought/train/checkpoint.h"
#include "nought/train/engine.h"
#include "nought/train/hf_folder.h"
#include "nought/train/model_schedule.h"

namespace nought::pipeline_test {
namespace {

/// A decoder on one rank of a mesh with pipeline stages.
struct Staged {
  Staged(Communicator& world, const GridSizes& sizes, const ModelConfig& config, const ShardedModel::Options& options,
         const RecomputeOptions& recompute = {}, const Fp8Options& fp8 = {}, const Freezing& freezing = {},
         const Pipeline& pipeline = {})
      : context(Context::cpu()),
        mesh(world, sizes),
        decoder(
            config, recompute, fp8,
            ModelRanks(mesh, false, {.chunks = static_cast<int>(pipeline.chunks), .v_shaped = pipeline.v_shaped()})),
        model(context, mesh, frozen(decoder, freezing), options) {}
  static Decoder& frozen(Decoder& decoder, const Freezing& freezing) {
    apply(freezing, decoder);
    return decoder;
  }

  Context context;
  Mesh mesh;
  Decoder decoder;
  ShardedModel model;
};

/// Weights begin so large that the rounding of one step hardly grows in thirty (support/mesh_runs.h).
ModelConfig model_of(const std::string& family, bool tied, int layers = 5) {
  nlohmann::json json{{"model_type", family},        {"vocab_size", 61},
                      {"hidden_size", 32},           {"intermediate_size", 48},
                      {"num_hidden_layers", layers}, {"num_attention_heads", 4},
                      {"num_key_value_heads", 2},    {"max_position_embeddings", 16},
                      {"initializer_range", 0.1},    {"tie_word_embeddings", tied}};
  return ModelConfig::from_json(json);
}

struct Course {
  std::vector<double> losses, norms, validations, scales;
  int64_t skipped = 0;
  std::map<std::string, std::vector<float>> weights;  // at the end, whole
};

struct Job {
  ModelConfig config = model_of("llama", false);
  ShardedModel::Options options = {};
  RecomputeOptions recompute = {};
  Fp8Options fp8 = {};
  Freezing freezing = {};
  int64_t accumulation = 4, steps = 4;
  std::string resumed = "", saved = "";
  int64_t first = 0;
  Pipeline pipeline = {};
  LossScaler scaler = {};
  bool documents = false;  // rows are packed with two, which begin elsewhere in each row
};

Batch rows_of(const Job& job, Memory& memory, int64_t step, int64_t micro_batch, int rank, int ranks) {
  Batch batch = test::rows_of(memory, step, micro_batch, rank, ranks);
  if (job.documents)
    for (int64_t row = 0; row < batch.input_ids.dim(0); ++row)
      batch.document_starts.push_back({0, static_cast<int32_t>(1 + (step + micro_batch + row) % 4)});
  return batch;
}

int ranks_of(const GridSizes& sizes) {
  return sizes.replicate * sizes.shard * sizes.context * sizes.tensor * sizes.pipeline;
}

Course train(const Job& job, const GridSizes& sizes) {
  Course course;
  run_ranks(ranks_of(sizes), [&](Communicator& world) {
    Staged rank(world, test::Sharing::sharing_experts(sizes), job.config, job.options, job.recompute, job.fp8,
                job.freezing, job.pipeline);
    if (job.resumed.empty()) {
      rank.model.load(InitialState(3));
    } else {
      const Checkpoint checkpoint(last_checkpoint(job.resumed), rank.decoder);
      rank.model.load(checkpoint, checkpoint.info().step);
    }
    Engine engine(rank.model, job.scaler);
    if (sizes.pipeline > 1 && job.pipeline.ranks > 1) engine.set_schedule(schedule_at(rank.mesh, job.pipeline));
    const Communicator& samples = rank.mesh.group(Group::samples);
    for (int64_t step = job.first; step < job.first + job.steps; ++step) {
      std::vector<Batch> batches;
      double targets = 0;
      for (int64_t i = 0; i < job.accumulation; ++i) {
        batches.push_back(rows_of(job, *rank.context.memory, step + i, i, samples.rank(), samples.size()));
        targets += CrossEntropyObjective().weight(rows_of(job, *rank.context.memory, step + i, i, 0, 1));
      }
      const StepResult result = engine.step(batches, targets, 2e-3, 0.3);
      const double validation = engine.evaluate(batches, targets);
      if (world.rank() != 0) continue;
      course.losses.push_back(result.loss), course.norms.push_back(result.grad_norm);
      course.validations.push_back(validation), course.scales.push_back(result.loss_scale);
      if (result.skipped) ++course.skipped;
    }
    if (!job.saved.empty())
      save_checkpoint(rank.model, {.step = job.first + job.steps, .world_size = world.size()}, job.saved);
    const auto weights = test::whole_values(rank.model);
    if (world.rank() == 0) course.weights = weights;
  });
  return course;
}

void expect_same(const Course& course, const Course& alone, size_t first = 0) {
  for (size_t i = 0; i < course.losses.size(); ++i) {
    EXPECT_EQ(course.losses[i], alone.losses[first + i]) << i;
    EXPECT_EQ(course.norms[i], alone.norms[first + i]) << i;
    EXPECT_EQ(course.validations[i], alone.validations[first + i]) << i;
    EXPECT_EQ(course.scales[i], alone.scales[first + i]) << i;
  }
  EXPECT_EQ(course.weights, alone.weights);
}

void expect_close(const Course& course, const Course& alone) {
  for (size_t i = 0; i < course.losses.size(); ++i) {
    EXPECT_NEAR(course.losses[i], alone.losses[i], 1e-5) << i;
    EXPECT_NEAR(course.norms[i], alone.norms[i], 1e-5 * alone.norms[i]) << i;
  }
  ASSERT_EQ(course.weights.size(), alone.weights.size());
  for (const auto& [name, values] : course.weights) {
    const std::vector<float>& want = alone.weights.at(name);
    ASSERT_EQ(values.size(), want.size()) << name;
    for (size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(values[i], want[i], 1e-5) << name << " " << i;
  }
}

/// Adam divides by the root of a square: with its usual epsilon, rounding decides what a gradient near 0 does.
const ShardedModel::Options kAdam{.optimizer = {.method = AdamOptions{.eps = 1e-4}, .weight_decay = 0.1}};

TEST(Pipeline, thirty_steps_of_every_number_of_stages_have_the_bits_of_one) {
  const Job job{.steps = 30};
  const Course alone = train(job, {});
  EXPECT_GT(*std::min_element(alone.norms.begin(), alone.norms.end()), 0.3) << "clipping is active";
  for (const int stages : {2, 3, 4, 7}) {
    SCOPED_TRACE(stages);
    expect_same(train(job, {.pipeline = stages}), alone);
  }
}

/// Every schedule on 2, 4 and 8 ranks, with every number of stages per rank that it runs, up to 16 stages.
std::vector<Pipeline> every_pipeline() {
  std::vector<Pipeline> all;
  for (const int64_t ranks : {2, 4, 8})
    for (int64_t chunks = 1; ranks * chunks <= 16; ++chunks)
      for (const PipelineSchedule schedule :
           {PipelineSchedule::gpipe, PipelineSchedule::one_f_one_b, PipelineSchedule::interleaved,
            PipelineSchedule::zbh1, PipelineSchedule::zbv}) {
        const bool interleaved = schedule == PipelineSchedule::interleaved && chunks > 1 && chunks <= 4;
        if (interleaved || (schedule != PipelineSchedule::interleaved && chunks == default_chunks(schedule)))
          all.push_back({.schedule = schedule, .ranks = ranks, .chunks = chunks});
      }
  return all;
}

std::string str(const Pipeline& pipeline) {
  return fmt::format("{} on {} ranks with {} stages each", name_of(pipeline.schedule), pipeline.ranks, pipeline.chunks);
}

TEST(Pipeline, every_schedule_has_the_bits_of_one_rank) {
  Job job{.config = model_of("llama", false, 14), .accumulation = 8, .steps = 2};
  const Course alone = train(job, {});
  std::array<Course, 4> two;  // data-parallel ranks, by ZeRO stage
  for (const int stage : {0, 1, 2, 3}) {
    job.options.policy = Policy::stage(stage);
    two[static_cast<size_t>(stage)] = train(job, {.shard = 2});
  }
  int turn = 0;
  for (const Pipeline& pipeline : every_pipeline()) {
    SCOPED_TRACE(str(pipeline));
    const int ranks = static_cast<int>(pipeline.ranks), stage = turn++ % 4;
    job.pipeline = pipeline;
    job.options.policy = Policy::stage(0);
    expect_same(train(job, {.pipeline = ranks}), alone);
    if (ranks > 4) continue;
    job.options.policy = Policy::stage(stage);
    expect_same(train(job, {.shard = 2, .pipeline = ranks}), two[static_cast<size_t>(stage)]);
  }
}

TEST(Pipeline, fewer_micro_batches_than_stages_have_them_too) {
  for (const int64_t accumulation : {1, 2, 3}) {
    const Job job{.accumulation = accumulation, .steps = 3};
    const Course alone = train(job, {});
    expect_same(train(job, {.pipeline = 2}), alone);
    expect_same(train(job, {.pipeline = 4}), alone);
  }
}

TEST(Pipeline, every_zero_stage_has_the_bits_of_the_same_data_parallel_ranks) {
  for (const int stage : {0, 1, 2, 3})
    for (const int64_t bucket : {0, 5000}) {
      SCOPED_TRACE(fmt::format("stage {}, bucket {}", stage, bucket));
      Job job;
      job.options.policy = Policy::stage(stage);
      job.options.reduce_bucket = job.options.gather_bucket = bucket;
      expect_same(train(job, {.shard = 2, .pipeline = 2}), train(job, {.shard = 2}));
      if (bucket == 0) expect_same(train(job, {.shard = 2, .pipeline = 4}), train(job, {.shard = 2}));
    }
}

TEST(Pipeline, tensor_ranks_have_the_bits_of_the_same_tensor_ranks) {
  Job job;
  expect_same(train(job, {.tensor = 2, .pipeline = 2}), train(job, {.tensor = 2}));
  job.options.policy = Policy::stage(3);
  expect_same(train(job, {.shard = 2, .tensor = 2, .pipeline = 2}), train(job, {.shard = 2, .tensor = 2}));
}

/// The gradients of the head's use and of the embedding's are added in another order.
TEST(Pipeline, tied_embeddings_are_those_of_one_rank_up_to_rounding) {
  Job job{.config = model_of("llama", true), .options = kAdam, .steps = 30};
  const Course alone = train(job, {});
  for (const int stages : {2, 3, 4}) expect_close(train(job, {.pipeline = stages}), alone);
  for (const int stage : {1, 2, 3}) {
    job.options.policy = Policy::stage(stage);
    expect_close(train(job, {.shard = 2, .pipeline = 3}), alone);
  }
  job.options.policy = Policy::stage(0);
  expect_close(train(job, {.shard = 2, .tensor = 2, .pipeline = 2}), train(job, {.shard = 2, .tensor = 2}));
}

/// Each of the two stages adds up its own part over the micro-batches, and then they add the parts: one order, however
/// many stages there are. Where the stages turn back one rank holds both uses, and adds as its passes come.
TEST(Pipeline, tied_embeddings_have_the_same_bits_with_every_schedule_but_the_one_that_turns_back) {
  Job job{.config = model_of("llama", true, 14), .options = kAdam, .accumulation = 8, .steps = 3};
  const Course alone = train(job, {}), staged = train(job, {.pipeline = 2});
  EXPECT_NEAR(staged.norms[0], alone.norms[0], 1e-7 * alone.norms[0]) << "before any rounding can grow";
  EXPECT_NE(staged.norms, alone.norms) << "else the two sums would be one";
  for (const Pipeline& pipeline : every_pipeline()) {
    SCOPED_TRACE(str(pipeline));
    job.pipeline = pipeline;
    const Course course = train(job, {.pipeline = static_cast<int>(pipeline.ranks)});
    expect_close(course, alone);
    if (!pipeline.v_shaped()) expect_same(course, staged);
  }
}

TEST(Pipeline, recomputation_bf16_and_factors_of_8_bits_leave_the_bits_alone) {
  for (const Recompute mode : {Recompute::selective, Recompute::full})
    for (const Fp8Scaling scaling : {Fp8Scaling::none, Fp8Scaling::delayed, Fp8Scaling::current}) {
      SCOPED_TRACE(fmt::format("recompute {}, fp8 {}", static_cast<int>(mode), name_of(scaling)));
      Job job;
      job.options.dtype = DType::bf16;
      job.recompute.mode = mode;
      job.recompute.interval = scaling == Fp8Scaling::delayed ? 2 : 0;
      job.fp8 = {.scaling = scaling, .history = 3};
      expect_same(train(job, {.pipeline = 3}), train(job, {}));
    }
}

TEST(Pipeline, steps_that_overflow_are_skipped_by_all_stages) {
  Job job{.steps = 8, .scaler = LossScaler(LossScaleOptions{.initial_power = 24, .scale_window = 3, .hysteresis = 1})};
  job.options.dtype = DType::f16;
  const Course alone = train(job, {});
  EXPECT_GT(alone.skipped, 1);
  EXPECT_LT(alone.skipped, job.steps);
  for (const int stages : {2, 4}) {
    SCOPED_TRACE(stages);
    const Course course = train(job, {.pipeline = stages});
    EXPECT_EQ(course.skipped, alone.skipped);
    EXPECT_EQ(course.scales, alone.scales);
    EXPECT_EQ(course.weights, alone.weights);
  }
}

TEST(Pipeline, packed_documents_see_themselves_alone_on_every_stage) {
  const Course whole_rows = train({}, {});
  Job job{.documents = true};
  const Course alone = train(job, {});
  EXPECT_NE(alone.losses, whole_rows.losses) << "documents matter";
  for (const Pipeline& pipeline : {Pipeline{.ranks = 2}, Pipeline{.ranks = 4}}) {
    SCOPED_TRACE(str(pipeline));
    expect_same(train(job, {.pipeline = static_cast<int>(pipeline.ranks)}), alone);
  }
}

TEST(Pipeline, what_is_frozen_gets_no_gradient_and_the_walk_back_ends_above_it) {
  for (const char* frozen : {"embed_tokens", "layers.[012]|embed_tokens", "lm_head|norm", "layers.[34]"}) {
    SCOPED_TRACE(frozen);
    const Job job{.freezing = {.freeze = {frozen}, .trainable = {}}};
    expect_same(train(job, {.pipeline = 2}), train(job, {}));
    expect_same(train(job, {.pipeline = 4}), train(job, {}));
  }
}

ModelConfig experts(bool auxiliary) {
  return ModelConfig::from_json({{"model_type", "qwen3_moe"},
                                 {"vocab_size", 61},
                                 {"hidden_size", 32},
                                 {"intermediate_size", 48},
                                 {"moe_intermediate_size", 16},
                                 {"num_hidden_layers", 4},
                                 {"num_attention_heads", 4},
                                 {"num_key_value_heads", 2},
                                 {"head_dim", 8},
                                 {"num_experts", 4},
                                 {"num_experts_per_tok", 2},
                                 {"output_router_logits", auxiliary},
                                 {"router_aux_loss_coef", 0.1},
                                 {"max_position_embeddings", 16}});
}

TEST(Pipeline, the_loss_that_balances_experts_is_that_of_all_layers) {
  for (const bool auxiliary : {false, true}) {
    Job job{.config = experts(auxiliary)};
    expect_same(train(job, {.pipeline = 2}), train(job, {}));
    expect_same(train(job, {.pipeline = 4}), train(job, {}));
    expect_same(train(job, {.shard = 2, .pipeline = 2}), train(job, {.shard = 2}));
    expect_same(train(job, {.shard = 2, .pipeline = 2, .expert = 2}), train(job, {.shard = 2, .expert = 2}));
  }
}

TEST(Pipeline, a_checkpoint_of_other_stages_is_continued_bit_for_bit) {
  const Course whole = train({.steps = 4}, {});
  const std::vector<GridSizes> meshes{{.pipeline = 2}, {.pipeline = 4}, {}, {.pipeline = 3}};
  for (size_t i = 0; i < meshes.size(); ++i) {
    const test::TempFolder folder;
    train({.steps = 2, .saved = folder.path()}, meshes[i]);
    expect_same(train({.steps = 2, .resumed = folder.path(), .first = 2}, meshes[(i + 1) % meshes.size()]), whole, 2);
  }
}

TEST(Pipeline, a_loss_that_is_not_finite_names_the_stage_that_made_it) {
  run_ranks(2, [&](Communicator& world) {
    Staged rank(world, {.pipeline = 2}, model_of("llama", false), {});
    rank.model.load(InitialState(3));
    const Batch batch = test::rows_of(*rank.context.memory, 0, 0, 0, 1);
    Engine engine(rank.model);
    // The last block's norm, which the second stage has.
    for (const auto& unit : rank.decoder.units())
      for (size_t segment = 0; unit->name() == "block.4" && segment < unit->segments().size(); ++segment)
        if (!unit->elsewhere())
          rank.context.run(Fill{.x = rank.model.residency().updating({unit->index(), segment}), .value = 1e30});
    std::string message;
    try {
      engine.step(std::span(&batch, 1), CrossEntropyObjective().weight(batch), 1e-3, 1);
    } catch (const Error& error) {
      message = error.what();
    }
    EXPECT_THAT(message, ::testing::HasSubstr("rank 1: block.4"));
    EXPECT_THAT(message, ::testing::HasSubstr("forward"));
  });
}

}  // namespace
}  // namespace nought::pipeline_test
