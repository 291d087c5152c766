// Runs that train an adapter: what they leave behind is the adapter alone, and they go on from it on any layout.
#include "nought/train/adapter_run.h"

#include <fstream>

#include "support/loaded_states.h"
#include "support/message_of.h"
#include "support/saved_model.h"
#include "support/sweep.h"
#include "support/temp_folder.h"
#include "support/trainer_runs.h"
#include "support/training_case.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/json.h"
#include "nought/checkpoint/checkpoint_contents.h"
#include "nought/tensor/random.h"
#include "nought/weights/hf_folder.h"

namespace nought::adapter_run_test {
namespace {

namespace fs = std::filesystem;
using test::message_of;
using test::run_plan;
using test::RunStart;
using test::TempFolder;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

constexpr int64_t kRank = 3;

class AdapterRuns : public ::testing::Test {
 protected:
  AdapterRuns() {
    write_base(1);
    plan = test::plan_on_lines(folder, 6, 5e-2);
    plan.model_config = {}, plan.model_dir = (folder / "base").string();
    plan.adapter = AdapterConfig{.r = kRank, .alpha = 6, .targets = {.pattern = "all-linear"}};
    plan.adapter_place = "RUN.json: adapter";
    plan.save_steps = 3;
  }
  void write_base(uint64_t seed) const {
    write_text(folder / "base/config.json", test::tiny_llama().to_hf_json(DType::f32).dump());
    test::write_weights(folder / "base", test::tiny_llama(), [seed](int64_t i) {
      return static_cast<float>(0.1 * normal_at(seed, static_cast<uint64_t>(i)));
    });
  }
  static void write_text(const fs::path& file, const std::string& text) {
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  /// Parameters of all-linear on a block of hidden size 16 and MLPs of 24.
  static constexpr int64_t kElements = 2 * kRank * (4 * (16 + 16) + 3 * (16 + 24));

  const TempFolder folder;
  RunPlan plan;
};

TEST_F(AdapterRuns, export_the_folder_of_an_adapter_that_is_read_as_a_model) {
  const test::ToldRun told = run_plan(plan);
  EXPECT_LT(told.losses().back(), told.losses().front());
  EXPECT_EQ(told.summary.parameters - told.summary.frozen, kElements);
  const std::vector<std::string> names = test::names_in(folder / "out");
  EXPECT_THAT(names, Contains("adapter_config.json"));
  EXPECT_THAT(names, Contains("adapter_model.safetensors"));
  EXPECT_THAT(names, Not(Contains("config.json")));
  EXPECT_THAT(names, Not(Contains("model.safetensors")));
  fs::remove_all(folder / "out/checkpoint-3"), fs::remove_all(folder / "out/checkpoint-6");
  const ModelSource source(find_model(folder / "out"));
  EXPECT_EQ(source.folder(), folder / "base");
  EXPECT_EQ(source.config().adapter.layers.size(), 14u);
  EXPECT_EQ(read_adapter_config(folder / "out").task_type, "CAUSAL_LM");
}

TEST_F(AdapterRuns, train_in_4_bits_within_half_of_the_models_weights_in_16_bits) {
  const ModelConfig large = ModelConfig::from_json({{"model_type", "llama"},
                                                    {"vocab_size", 256},
                                                    {"hidden_size", 256},
                                                    {"intermediate_size", 768},
                                                    {"num_hidden_layers", 8},
                                                    {"num_attention_heads", 4},
                                                    {"num_key_value_heads", 4},
                                                    {"max_position_embeddings", 64},
                                                    {"tie_word_embeddings", true}});
  write_text(folder / "large/config.json", large.to_hf_json(DType::f32).dump());
  test::write_weights(folder / "large", large,
                      [](int64_t i) { return static_cast<float>(0.05 * normal_at(5, static_cast<uint64_t>(i))); });
  plan.model_dir = (folder / "large").string(), plan.save_steps = 0;
  plan.layout.sharding.dtype = plan.layout.sharding.gradient_dtype = DType::bf16;
  plan.layout.recompute.mode = Recompute::full;
  plan.device_memory = Decoder(large).parameter_count();  // bytes: half of what they take in bf16
  EXPECT_THAT(message_of<Error>([&] { run_plan(plan); }), HasSubstr("memory"));
  plan.layout.freezing.codes = WeightCodes{CodeKind::nf4, /*double_quantized=*/true};
  const test::ToldRun told = run_plan(plan);
  EXPECT_LT(told.losses().back(), told.losses().front());
  EXPECT_LE(told.memory.at(0).peak_total, plan.device_memory);
}

TEST_F(AdapterRuns, save_checkpoints_of_the_adapter_and_its_states_alone) {
  run_plan(plan);
  const CheckpointContents contents = contents_of(folder / "out/checkpoint-6");
  EXPECT_EQ(contents.parameters, kElements);
  EXPECT_EQ(contents.frozen, 0);
  ASSERT_TRUE(contents.info.base.has_value());
  EXPECT_EQ(contents.info.base->hash, ModelSource(folder / "base").weights_hash());
  EXPECT_EQ(test::values_of(ModelSource(folder / "out/checkpoint-6").weights(), ModelSource(folder / "out").model()),
            test::values_of(ModelSource(folder / "out").weights(), ModelSource(folder / "out").model()))
      << "the last checkpoint has what was exported";
}

TEST_F(AdapterRuns, go_on_from_a_checkpoint_on_another_layout) {
  plan.adapter->dropout = 0.2;
  const test::ToldRun whole = run_plan(plan);
  test::expect_resumes(plan, whole, 3, 1);
  fs::remove_all(folder / "out/checkpoint-6");
  RunPlan sharded = plan;
  sharded.layout.zero_stage = 3, sharded.layout.ranks = 2, sharded.layout.micro_batch = 1;
  const std::vector<double> losses = run_plan(sharded, {.ranks = 2, .mode = StartMode::resume}).losses();
  const std::vector<double> expected = whole.losses_after(3);
  ASSERT_EQ(losses.size(), expected.size());
  for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], expected[i], 1e-5);
}

TEST_F(AdapterRuns, do_not_go_on_with_another_base) {
  run_plan(plan);
  write_base(2);
  RunPlan later = plan;
  later.max_steps = 8;
  EXPECT_THAT(message_of<ConfigError>([&] { run_plan(later, {.mode = StartMode::resume}); }),
              HasSubstr("name the model that it was trained on"));
}

TEST_F(AdapterRuns, begin_with_the_base_and_go_on_from_an_adapter) {
  const test::ToldRun first = run_plan(plan);
  RunPlan on = plan;
  on.adapter.reset(), on.adapter_dir = (folder / "out").string();
  on.output_dir = (folder / "on").string();
  const test::ToldRun second = run_plan(on);
  EXPECT_LT(second.losses().front(), first.losses().front());
  RunPlan full = plan;
  full.adapter.reset(), full.output_dir = (folder / "full").string();
  EXPECT_EQ(run_plan(full).losses().front(), first.losses().front()) << "B is 0 at first";
}

TEST_F(AdapterRuns, begin_with_the_norms_of_the_base_as_magnitudes) {
  plan.adapter->dora = true;
  const test::ToldRun first = run_plan(plan);
  RunPlan full = plan;
  full.adapter.reset(), full.output_dir = (folder / "full").string();
  EXPECT_NEAR(run_plan(full).losses().front(), first.losses().front(), 1e-5) << "every factor is 1 at first";
  plan.adapter->start = AdapterStart::random, plan.output_dir = (folder / "random").string();
  const double decomposed = run_plan(plan).losses().front();
  plan.adapter->dora = false, plan.output_dir = (folder / "plain").string();
  EXPECT_NEAR(run_plan(plan).losses().front(), decomposed, 1e-5) << "of W + BA they are 1 too";
}

TEST_F(AdapterRuns, train_rows_of_tokens_that_begin_as_those_of_the_base) {
  RunPlan full = plan;
  full.adapter.reset(), full.output_dir = (folder / "full").string();
  const double first = run_plan(full).losses().front();
  plan.adapter->tokens = {{"embed_tokens", {97, 32}}, {"lm_head", {101, 97}}};  // lines are made of these
  const test::ToldRun told = run_plan(plan);
  EXPECT_NEAR(told.losses().front(), first, 1e-6);
  EXPECT_EQ(told.summary.parameters - told.summary.frozen, kElements + 4 * 16);
  const ModelSource source(FoundModel{folder / "base", {}, {{folder / "out"}}}), base(FoundModel{folder / "base"});
  EXPECT_EQ(source.config().adapter.tokens.at("lm_head"), (std::vector<int32_t>{101, 97}));
  const SafetensorsFile file(folder / "out/adapter_model.safetensors");
  const auto memory = Memory::create();
  for (const auto& [layer, tokens] : source.config().adapter.tokens) {
    const std::vector<float> rows = file.load(token_rows_name(layer), *memory).to_vector<float>();
    for (size_t i = 0; i < tokens.size(); ++i) {
      Parameter table;
      for (const auto& unit : base.model().units())
        for (const Parameter& each : unit->parameters())
          if (each.name == layer + ".weight") table = each;
      const Tensor row = Tensor::empty(*memory, {16}, DType::f32, Category::workspace);
      base.weights().fill(StateKind::master, table, Interval{tokens[i] * 16, (tokens[i] + 1) * 16}, row);
      const std::vector<float> before = row.to_vector<float>();
      double moved = 0;
      for (size_t k = 0; k < before.size(); ++k)
        moved = std::max(moved, std::abs(double{rows[16 * i + k] - before[k]}));
      EXPECT_GT(moved, 1e-3) << layer << " of token " << tokens[i];
      EXPECT_LT(moved, 1) << "it began at the row of the base";
    }
  }
  test::expect_resumes(plan, told, 3, 1);
}

/// What is exported fits the untouched base: the difference to the start.
TEST_F(AdapterRuns, begin_with_a_part_of_the_base_and_export_the_difference) {
  RunPlan full = plan;
  full.adapter.reset(), full.output_dir = (folder / "full").string(), full.max_steps = 1;
  const double first = run_plan(full).losses().front();
  for (const AdapterStart start : {AdapterStart::pissa, AdapterStart::olora, AdapterStart::orthogonal}) {
    plan.adapter->start = start, plan.adapter->r = 2;
    plan.output_dir = (folder / ("out" + std::to_string(static_cast<int>(start)))).string();
    const test::ToldRun told = run_plan(plan);
    EXPECT_NEAR(told.losses().front(), first, 1e-5) << "both together are the model";
    EXPECT_LT(told.losses().back(), told.losses().front());
    test::expect_resumes(plan, told, 3, 1);
    const auto merged = [](const fs::path& path) {
      const ModelSource source(find_model(path), AdaptersAre::merged);
      return test::values_of(source.weights(), source.model());
    };
    const fs::path out = plan.output_dir;
    const test::WholeTensors saved = merged(out / "checkpoint-6");
    for (const char* file : {"adapter_config.json", "adapter_model.safetensors"}) {
      fs::create_directories(folder / "copy");
      fs::copy_file(out / file, folder / "copy" / file, fs::copy_options::overwrite_existing);
    }
    test::expect_close(merged(folder / "copy"), saved, 1e-5);
    EXPECT_EQ(read_adapter_config(folder / "copy").r, takes_of_the_base(start) ? 4 : 2);
  }
}

TEST_F(AdapterRuns, are_told_from_runs_of_the_model_itself) {
  run_plan(plan);
  RunPlan full = plan;
  full.adapter.reset(), full.max_steps = 8;
  EXPECT_THAT(message_of<ConfigError>([&] { run_plan(full, {.mode = StartMode::resume}); }),
              HasSubstr("holds an adapter of"));
  full.output_dir = (folder / "full").string(), full.max_steps = 3;
  run_plan(full);
  RunPlan adapted = plan;
  adapted.output_dir = full.output_dir;
  EXPECT_THAT(message_of<ConfigError>([&] { run_plan(adapted, {.mode = StartMode::resume}); }),
              HasSubstr("is of a run that trained the model itself"));
}

/// A small model with an adapter whose factors are random.
test::TrainingCase adapted(const char* model, const LayerChoice& targets) {
  test::TrainingCase each = test::learning(test::small_model(model));
  each.model.adapter = resolve_adapter({.r = 2, .alpha = 0.5, .targets = targets, .start = AdapterStart::random},
                                       each.model, "RUN.json");
  each.steps.end = 3;
  return each;
}

const LayerChoice kAll{.pattern = "all-linear"};
const LayerChoice kLatent{.names = {"q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj", "up_proj"}};

/// Bit for bit at every stage; what is trained is the adapter, and nothing else.
void expect_every_stage(test::TrainingCase each) {
  each.mesh = test::sharded(2, 0);
  const test::TrainingResult result = test::same_at_every_stage(each);
  each.steps.end = 0;
  const test::TrainingResult start = each.run();
  for (const auto& [name, values] : result.weights)
    EXPECT_EQ(values != start.weights.at(name), name.starts_with(kAdapterPrefix)) << name;
}

const std::vector<test::MeshLayout> kMeshes{{.sizes = {.tensor = 2}},
                                            {.sizes = {.shard = 2, .tensor = 2}, .sequence_parallel = true, .stage = 3},
                                            {.sizes = {.shard = 2, .pipeline = 2}, .stage = 1},
                                            {.sizes = {.context = 2}, .stage = 2}};

TEST(AdapterTraining, stages_agree_bit_for_bit_and_the_base_stays) {
  expect_every_stage(adapted("grouped_heads", kAll));
}

TEST(AdapterTraining, meshes_give_what_one_rank_gives) {
  for (const test::TrainingCase& each : {adapted("grouped_heads", kAll), adapted("latent", kLatent)})
    test::expect_close_on(kMeshes, each, each.run());
}

/// With dropout of what A reads, which is a function of (seed, step, sample, layer).
test::TrainingCase dropping(const char* model, const LayerChoice& targets) {
  test::TrainingCase each = adapted(model, targets);
  each.model.adapter.dropout = 0.25;
  return each;
}

TEST(AdapterTraining, what_is_dropped_is_the_same_at_every_stage_and_however_it_is_computed_again) {
  test::TrainingCase each = dropping("grouped_heads", kAll);
  each.mesh = test::sharded(2, 0);
  const test::TrainingResult result = test::same_at_every_stage(each);
  for (const Recompute mode : {Recompute::selective, Recompute::full}) {
    each.recompute.mode = mode;
    test::expect_same_bits(each.run(), result);
  }
  each.recompute = {}, each.model.adapter.dropout = 0;
  EXPECT_NE(each.run().losses, result.losses);
}

TEST(AdapterTraining, what_is_dropped_is_the_same_on_every_mesh) {
  for (test::TrainingCase each : {dropping("grouped_heads", kAll), dropping("latent", kLatent)}) {
    const test::TrainingResult alone = each.run();
    test::expect_close_on(kMeshes, each, alone);
    each.recompute.mlp_tiles = 2, each.accumulation = 2;
    test::expect_close(each.run(), alone);
  }
}

/// With magnitudes (DoRA).
test::TrainingCase decomposed(const char* model, const LayerChoice& targets, double dropout) {
  test::TrainingCase each = adapted(model, targets);
  each.model.adapter.dropout = dropout;
  for (auto& [name, layer] : each.model.adapter.layers) layer.decomposed = true;
  return each;
}

TEST(AdapterTraining, magnitudes_are_the_same_at_every_stage_and_trained) {
  expect_every_stage(decomposed("grouped_heads", kAll, 0));
}

TEST(AdapterTraining, magnitudes_are_the_same_on_every_mesh) {
  for (const double dropout : {0.0, 0.25})
    for (test::TrainingCase each :
         {decomposed("grouped_heads", kAll, dropout), decomposed("latent", kLatent, dropout)}) {
      const test::TrainingResult alone = each.run();
      test::expect_close_on(kMeshes, each, alone);
      each.recompute.mode = Recompute::full;
      test::expect_same_bits(each.run(), alone);
    }
}

TEST(AdapterTraining, evaluation_drops_nothing) {
  test::TrainingCase each = dropping("grouped_heads", kAll);
  each.evaluates = true, each.steps.end = 1, each.lr = 0;
  const test::TrainingResult result = each.run();
  each.model.adapter.dropout = 0;
  EXPECT_EQ(result.validations, each.run().validations);
  EXPECT_NE(result.losses, each.run().losses);
}

/// The meshes of 8 ranks, at every stage; the suite has the two that cut most.
std::vector<test::MeshLayout> meshes_of_8() {
  std::vector<test::MeshLayout> all;
  for (const int tensor : {1, 2})
    for (const int pipeline : {1, 2})
      for (const int context : {1, 2})
        for (const int stage : {0, 1, 2, 3}) {
          if (!test::runs_everything() && (tensor * context < 4 || stage != (pipeline == 1 ? 3 : 1))) continue;
          const int shared = tensor * pipeline * context;
          all.push_back({.sizes = {.shard = 8 / shared, .context = context, .tensor = tensor, .pipeline = pipeline},
                         .stage = stage});
        }
  return all;
}

/// With magnitudes and dropout; 30 steps in a sweep.
TEST(AdapterTraining, steps_are_those_of_one_rank_on_every_mesh) {
  test::TrainingCase each = decomposed("grouped_heads", kAll, 0.1);
  each.rows.of_step = 8, each.steps.end = test::sweep(3, 30);
  test::expect_close_on(meshes_of_8(), each, each.run());
}

TEST(AdapterTraining, tiles_of_units_are_refused_by_name) {
  RecomputeOptions tiles;
  tiles.unit_tiles = 2;
  EXPECT_THAT(message_of<ConfigError>([&] { Decoder(adapted("grouped_heads", kAll).model, tiles); }),
              HasSubstr("training.memory_centric_tiling = 2: tiles of matrices with an adapter are not supported yet"));
}

}  // namespace
}  // namespace nought::adapter_run_test
