// Ranks that share matrices, heads and the vocabulary compute what one rank computes.
#include "support/cut_units.h"
#include "support/golden.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/comm/thread.h"
#include "nought/models/tensor_cuts.h"
#include "nought/tensor/random.h"
#include "nought/train/checkpoint.h"
#include "nought/train/engine.h"
#include "nought/train/hf_folder.h"
#include "nought/train/probe.h"

namespace nought {
namespace {

using test::golden_folder;

/// A decoder on one rank of a mesh.
struct Sharing {
  Sharing(Communicator& world, const GridSizes& sizes, const ModelConfig& config, ShardedModel::Options options = {},
          Context on = Context::cpu())
      : context(std::move(on)),
        mesh(world, sizes),
        decoder(config, Recompute::none, {}, ModelRanks(mesh)),
        model(context, mesh, decoder, options) {}
  Context context;
  Mesh mesh;
  Decoder decoder;
  ShardedModel model;
};

class GoldenTensorParallel : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenTensorParallel, logits_loss_and_gradients_agree_at_every_size) {
  const std::string folder = golden_folder(GetParam()), golden = folder + "/golden.safetensors";
  const ModelConfig config = ModelConfig::from_folder(folder);
  int agreed = 0;
  for (const GridSizes sizes : std::vector<GridSizes>{{.tensor = 2}, {.tensor = 4}, {.shard = 2, .tensor = 2}}) {
    if (!reason_not_to_cut(config, sizes.tensor).empty()) continue;
    SCOPED_TRACE(fmt::format("tensor {}, shard {}", sizes.tensor, sizes.shard));
    run_ranks(sizes.tensor * sizes.shard, [&](Communicator& world) {
      Sharing rank(world, sizes, config, {.policy = Policy::stage(sizes.shard > 1 ? 3 : 0)});
      rank.model.load(HfWeights(folder, rank.decoder));
      const ProbeInput input = read_probe_input(rank.context, golden, config.vocab_size);
      const ProbeOutput output = probe(rank.model, rank.decoder, input, true);
      if (world.rank() != 0) return;
      const SafetensorsFile expected(golden);
      EXPECT_EQ(output.size(), expected.entries().size() - 2);
      for (const auto& [name, tensor] : output) {
        const Tensor want = expected.load(name, *rank.context.memory);
        if (name == "logits") {
          EXPECT_LE(test::difference(tensor, want).max_abs, 5e-5);
        } else if (name == "loss") {
          EXPECT_NEAR(tensor.item(), want.item(), 5e-6);
        } else {
          test::expect_gradient_close(name, tensor, want, 5e-5);
        }
      }
      ++agreed;
    });
  }
  EXPECT_EQ(agreed, 3);
}

INSTANTIATE_TEST_SUITE_P(Families, GoldenTensorParallel,
                         ::testing::Values("open/gemma", "open/gemma2", "open/gemma3_text", "open/gpt2",
                                           "open/gpt_neox", "open/llama", "open/llama3", "open/llama_gqa",
                                           "open/llama_linear", "open/llama_yarn", "open/mistral", "open/phi3",
                                           "open/phi3_longrope", "open/qwen2", "open/qwen2_swa", "open/qwen3"),
                         [](const auto& info) { return std::string(info.param).substr(5); });

constexpr int64_t kRows = 4, kLength = 12, kAccumulation = 2, kSteps = 30;

ModelConfig small_model(const std::string& family) {
  if (family == "gpt2")
    return ModelConfig::from_json({{"model_type", "gpt2"},
                                   {"vocab_size", 61},
                                   {"n_embd", 32},
                                   {"n_layer", 2},
                                   {"n_head", 4},
                                   {"n_positions", 16}});
  return ModelConfig::from_json({{"model_type", "qwen3"},  // norms of heads, and a key/value head that ranks share
                                 {"vocab_size", 61},       // for 4 ranks 16, 16, 16 and 13 tokens
                                 {"hidden_size", 32},
                                 {"intermediate_size", 48},
                                 {"num_hidden_layers", 2},
                                 {"num_attention_heads", 4},
                                 {"num_key_value_heads", 1},
                                 {"head_dim", 12},
                                 {"max_position_embeddings", 16},
                                 {"tie_word_embeddings", true}});
}

/// The rows of a micro-batch that one of the data-parallel ranks reads. Rows have different numbers of targets.
Batch rows_of(Memory& memory, int64_t step, int64_t micro_batch, int rank, int ranks) {
  const int64_t rows = kRows / ranks;
  std::vector<int32_t> ids, targets;
  for (int64_t row = rank * rows; row < (rank + 1) * rows; ++row)
    for (int64_t t = 0; t < kLength; ++t) {
      const auto at = static_cast<uint64_t>(((step * kAccumulation + micro_batch) * kRows + row) * kLength + t);
      ids.push_back(static_cast<int32_t>(61 * (1 - uniform_at(7, at))));
      const bool counts = t > 3 * row && (row != 2 || micro_batch == 0);
      targets.push_back(counts ? static_cast<int32_t>(61 * (1 - uniform_at(8, at))) : kIgnoredTarget);
    }
  return {Tensor::of<int32_t>(memory, {rows, kLength}, ids), Tensor::of<int32_t>(memory, {rows, kLength}, targets)};
}

struct Course {
  std::vector<double> losses, norms;
  std::map<std::string, std::vector<float>> weights;  // at the end, whole
};

/// Steps [from, to) of a run. The states before are those of `resumed`, and those after are left in `saved`, if these
/// are folders.
Course train(const std::string& family, const GridSizes& sizes, ShardedModel::Options options, Interval steps,
             const std::string& resumed = "", const std::string& saved = "") {
  Course course;
  run_ranks(sizes.tensor * sizes.shard, [&](Communicator& world) {
    Sharing rank(world, sizes, small_model(family), options);
    if (resumed.empty()) {
      rank.model.load(InitialState(3));
    } else {
      const Checkpoint checkpoint(last_checkpoint(resumed), rank.decoder);
      rank.model.load(checkpoint, checkpoint.info().step);
    }
    Engine engine(rank.model);
    const Communicator& samples = rank.mesh.group(Group::samples);
    for (int64_t step = steps.begin; step < steps.end; ++step) {
      std::vector<Batch> batches;
      double targets = 0;
      for (int64_t i = 0; i < kAccumulation; ++i) {
        batches.push_back(rows_of(*rank.context.memory, step, i, samples.rank(), samples.size()));
        targets += CrossEntropyObjective().weight(rows_of(*rank.context.memory, step, i, 0, 1));
      }
      const StepResult result = engine.step(batches, targets, 2e-3, 0.3);
      if (world.rank() != 0) continue;
      EXPECT_GT(result.grad_norm, 0.3) << "clipping is active";
      course.losses.push_back(result.loss), course.norms.push_back(result.grad_norm);
    }
    if (!saved.empty()) save_checkpoint(rank.model, {.step = steps.end, .world_size = world.size()}, saved);
    const auto weights = test::whole_values(rank.model);
    if (world.rank() == 0) course.weights = weights;
  });
  return course;
}

/// Adam divides by the root of a square: with its usual epsilon, rounding decides what a gradient near 0 does.
const ShardedModel::Options kAdam{.optimizer = {.method = AdamOptions{.eps = 1e-4}, .weight_decay = 0.1}};

void expect_close(const Course& course, const Course& alone, size_t first = 0) {
  for (size_t i = 0; i < course.losses.size(); ++i) {
    EXPECT_NEAR(course.losses[i], alone.losses[first + i], 1e-5) << "loss of step " << first + i;
    EXPECT_NEAR(course.norms[i], alone.norms[first + i], 1e-5 * alone.norms[first + i]) << "norm of " << first + i;
  }
  ASSERT_EQ(course.weights.size(), alone.weights.size());
  for (const auto& [name, values] : course.weights) {
    const std::vector<float>& want = alone.weights.at(name);
    ASSERT_EQ(values.size(), want.size()) << name;
    double largest = 0;
    for (size_t i = 0; i < values.size(); ++i)
      largest = std::max(largest, std::abs(static_cast<double>(values[i]) - static_cast<double>(want[i])));
    EXPECT_LE(largest, 1e-5) << name;
  }
}

class TensorParallelRuns : public ::testing::TestWithParam<const char*> {};

TEST_P(TensorParallelRuns, thirty_steps_are_those_of_one_rank_at_every_mesh_and_stage) {
  const Course alone = train(GetParam(), {}, kAdam, {0, kSteps});
  for (const GridSizes sizes : std::vector<GridSizes>{{.tensor = 2}, {.tensor = 4}, {.shard = 2, .tensor = 2}})
    for (const int stage : {0, 1, 2, 3}) {
      if (sizes.shard == 1 && stage > 0) continue;
      SCOPED_TRACE(fmt::format("tensor {}, shard {}, stage {}", sizes.tensor, sizes.shard, stage));
      ShardedModel::Options options = kAdam;
      options.policy = Policy::stage(stage);
      expect_close(train(GetParam(), sizes, options, {0, kSteps}), alone);
    }
}

TEST_P(TensorParallelRuns, a_checkpoint_of_one_mesh_is_continued_by_another) {
  const Course alone = train(GetParam(), {}, kAdam, {0, kSteps});
  const std::vector<GridSizes> meshes{{.tensor = 2}, {.shard = 2, .tensor = 2}, {.shard = 2}, {.tensor = 4}, {}};
  for (size_t i = 0; i < meshes.size(); ++i) {
    const GridSizes &saves = meshes[i], &resumes = meshes[(i + 1) % meshes.size()];
    SCOPED_TRACE(fmt::format("tensor {}, shard {} continues", saves.tensor, saves.shard));
    const test::TempFolder folder;
    ShardedModel::Options options = kAdam;
    options.policy = Policy::stage(i % 2 == 0 ? 3 : 1);
    train(GetParam(), saves, options, {0, kSteps / 2}, "", folder.path());
    expect_close(train(GetParam(), resumes, kAdam, {kSteps / 2, kSteps}, folder.path()), alone, kSteps / 2);
  }
}

TEST_P(TensorParallelRuns, the_same_mesh_resumes_bit_for_bit) {
  const GridSizes sizes{.shard = 2, .tensor = 2};
  const test::TempFolder folder;
  const Course whole = train(GetParam(), sizes, kAdam, {0, 6});
  train(GetParam(), sizes, kAdam, {0, 3}, "", folder.path());
  EXPECT_EQ(train(GetParam(), sizes, kAdam, {3, 6}, folder.path()).weights, whole.weights);
}

/// In bf16 the losses are not those of one rank to the last digit, but the model learns the same.
TEST_P(TensorParallelRuns, bf16_follows_one_rank) {
  ShardedModel::Options options = kAdam;
  options.dtype = DType::bf16;
  const Course alone = train(GetParam(), {}, options, {0, kSteps});
  const Course shared = train(GetParam(), {.shard = 2, .tensor = 2}, options, {0, kSteps});
  for (size_t i = 0; i < kSteps; ++i) EXPECT_NEAR(shared.losses[i], alone.losses[i], 2e-2) << i;
}

INSTANTIATE_TEST_SUITE_P(Families, TensorParallelRuns, ::testing::Values("qwen3", "gpt2"),
                         [](const auto& info) { return std::string(info.param); });

TEST(TensorParallel, recomputation_and_overlap_change_no_bit) {
  const auto gradients = [](const RecomputeOptions& recompute, bool overlap) {
    std::vector<float> all;
    run_ranks(4, [&](Communicator& world, const Context& context) {
      const Mesh mesh(world, {.shard = 2, .tensor = 2});
      Decoder decoder(small_model("qwen3"), recompute, {}, ModelRanks(mesh));
      ShardedModel model(context, mesh, decoder, {.policy = Policy::stage(3), .overlap = overlap});
      model.load(InitialState(3));
      const Batch batch = rows_of(*context.memory, 0, 0, mesh.group(Group::samples).rank(), 2);
      Engine(model).accumulate(std::span(&batch, 1), 20);
      for (size_t unit = 0; unit < decoder.units().size(); ++unit)
        for (const Tensor& gradient : model.gather_gradients(unit)) {
          const std::vector<float> values = gradient.to_vector<float>();
          if (world.rank() == 0) all.insert(all.end(), values.begin(), values.end());
        }
      model.discard_gradients();
    });
    return all;
  };
  const std::vector<float> plain = gradients(Recompute::none, true);
  ASSERT_FALSE(plain.empty());
  EXPECT_EQ(gradients(Recompute::none, false), plain);
  EXPECT_EQ(gradients(Recompute::full, true), plain);
  EXPECT_EQ(gradients(Recompute::selective, true), plain);
}

TEST(TensorParallel, an_exported_folder_is_whole) {
  const std::string folder = golden_folder("open/llama_gqa");
  const test::TempFolder out;
  run_ranks(4, [&](Communicator& world) {
    Sharing rank(world, {.shard = 2, .tensor = 2}, ModelConfig::from_folder(folder), {.policy = Policy::stage(3)});
    rank.model.load(HfWeights(folder, rank.decoder));
    export_hf_folder(rank.model, rank.decoder.config(), {}, out.path(), 1 << 30);
  });
  const Decoder decoder(ModelConfig::from_folder(out.path()));
  const HfWeights before(folder, decoder), after(out.path(), decoder);
  const Context context = Context::cpu();
  for (const auto& unit : decoder.units())
    for (const Parameter& parameter : unit->parameters()) {
      const Interval all{0, parameter.shape.numel()};
      const Tensor a = context.empty(parameter.shape, DType::f32), b = context.empty(parameter.shape, DType::f32);
      before.fill(StateKind::master, parameter, std::span(&all, 1), a);
      after.fill(StateKind::master, parameter, std::span(&all, 1), b);
      EXPECT_EQ(a.to_vector<float>(), b.to_vector<float>()) << parameter.name;
    }
}

/// Ranks that share heads each cache the keys and values of their own, and all see the logits of the whole vocabulary.
TEST(TensorParallel, logits_with_a_cache_are_those_of_one_rank) {
  const auto last_logits = [](int tensor) {
    std::vector<float> logits;
    run_ranks(tensor, [&](Communicator& world) {
      Sharing rank(world, {.tensor = tensor}, small_model("qwen3"));
      rank.model.load(InitialState(3));
      DecoderCache cache = rank.decoder.make_cache(rank.context, kLength, DType::f32);
      const std::vector<int32_t> prompt{5, 60, 17, 0}, next{33};
      rank.decoder.next_logits(rank.context, std::array{NextTokens{0, prompt}}, cache);
      const Tensor last = rank.decoder.next_logits(rank.context, std::array{NextTokens{0, next}}, cache);
      if (world.rank() == tensor - 1) logits = last.to_vector<float>();
    });
    return logits;
  };
  const std::vector<float> alone = last_logits(1);
  ASSERT_EQ(alone.size(), 61);
  for (const int tensor : {2, 4}) {
    const std::vector<float> shared = last_logits(tensor);
    for (size_t i = 0; i < alone.size(); ++i) EXPECT_NEAR(shared[i], alone[i], 1e-5) << i;
  }
}

}  // namespace
}  // namespace nought
