// Short runs of small models on any mesh of thread ranks, to be compared with those of one rank.
#pragma once

#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "support/cut_units.h"
#include "support/mesh_layouts.h"
#include <gtest/gtest.h>

#include "nought/comm/thread.h"
#include "nought/train/checkpoint.h"
#include "nought/train/engine.h"

namespace nought::test {

/// The batches of a run: each micro-batch has kRows rows over all data-parallel ranks, which is as many as there may
/// be.
inline constexpr int64_t kMeshRows = 8, kMeshLength = 7, kMeshAccumulation = 4, kMeshVocabulary = 61;

/// What the rows of a run are like.
struct MeshRows {
  int64_t length = kMeshLength;
  bool documents = false;  // rows are packed with several, which begin elsewhere in each row
};

/// The rows of a micro-batch that one of the data-parallel ranks reads. Rows have different numbers of targets, and one
/// of them has none but in the first micro-batch.
inline Batch mesh_rows(Memory& memory, const ModelConfig& config, int64_t step, int64_t micro_batch, int rank,
                       int ranks, const MeshRows& like = {}) {
  const int64_t length = like.length;
  const int64_t rows = kMeshRows / ranks;
  std::vector<int32_t> ids, targets;
  std::vector<std::vector<int32_t>> starts;
  for (int64_t row = rank * rows; row < (rank + 1) * rows; ++row) {
    if (like.documents) {
      const auto first = static_cast<int32_t>(1 + row % 3), second = static_cast<int32_t>(length - 1 - row / 3);
      starts.push_back({0, first, second});
    }
    for (int64_t t = 0; t < length; ++t) {
      const auto at = static_cast<uint64_t>(((step * kMeshAccumulation + micro_batch) * kMeshRows + row) * length + t);
      const auto token = [&](uint64_t seed) {
        return static_cast<int32_t>(static_cast<double>(config.vocab_size) * (1 - uniform_at(seed, at)));
      };
      ids.push_back(token(7));
      const bool counts = t >= 2 * row % length && (row != 2 || micro_batch == 0);
      targets.push_back(counts ? token(8) : kIgnoredTarget);
    }
  }
  return {Tensor::of<int32_t>(memory, {rows, length}, ids), Tensor::of<int32_t>(memory, {rows, length}, targets),
          std::move(starts)};
}

struct Course {
  std::vector<double> losses, norms;
  std::map<std::string, std::vector<float>> weights;  // at the end, whole
};

struct CourseOptions {
  /// Adam divides by the root of a square: with its usual epsilon, rounding decides what a gradient near 0 does.
  ShardedModel::Options sharding = {.optimizer = {.method = AdamOptions{.eps = 1e-4}, .weight_decay = 0.1}};
  Fp8Options fp8 = {};
  RecomputeOptions recompute = {};
  MeshRows rows = {};
  std::string resumed = "", saved = "";  // folders: of the checkpoint to start from, and to leave one in; "" for none
  int64_t accumulation = kMeshAccumulation;  // micro-batches of a step
  const Context* context = nullptr;          // what the rank computes with; null: the CPU
};
inline constexpr double kMeshClipping = 0.2;  // below every norm of these runs

/// Steps [steps.begin, steps.end) of a run on the ranks of `world`, whose first rank gets the course.
inline Course train_in(Communicator& world, const MeshLayout& layout, const ModelConfig& config, Interval steps,
                       const CourseOptions& options = {}) {
  Course course;
  Sharing rank = layout.rank(world, config, options.sharding, options.fp8, options.recompute,
                             options.context != nullptr ? *options.context : Context::cpu());
  if (options.resumed.empty()) {
    rank.model.load(InitialState(3));
  } else {
    const Checkpoint checkpoint(last_checkpoint(options.resumed), rank.decoder);
    rank.model.load(checkpoint, checkpoint.info().step);
    if (checkpoint.info().pending) rank.model.load_pending_update(checkpoint, *checkpoint.info().pending);
    checkpoint.fill_rank_states(rank.model);
  }
  Engine engine(rank.model);
  engine.set_schedule(schedule_at(rank.mesh, layout.pipeline()));
  const Communicator& samples = rank.mesh.group(Group::samples);
  for (int64_t step = steps.begin; step < steps.end; ++step) {
    std::vector<Batch> batches;
    double targets = 0;
    for (int64_t i = 0; i < options.accumulation; ++i) {
      batches.push_back(mesh_rows(*rank.context.memory, config, step, i, samples.rank(), samples.size(), options.rows));
      targets += CrossEntropyObjective().weight(mesh_rows(*rank.context.memory, config, step, i, 0, 1, options.rows));
    }
    const StepResult result = engine.step(batches, targets, 2e-3, kMeshClipping);
    if (world.rank() != 0) continue;
    EXPECT_GT(result.grad_norm, kMeshClipping) << "clipping is active";
    course.losses.push_back(result.loss), course.norms.push_back(result.grad_norm);
  }
  if (!options.saved.empty())
    save_checkpoint(rank.model,
                    {.step = steps.end, .world_size = world.size(), .pending = rank.model.optimizer().pending()},
                    options.saved);
  if (rank.model.optimizer().pending()) rank.model.finish_pending_update();
  const auto weights = whole_values(rank.model);
  if (world.rank() == 0) course.weights = weights;
  return course;
}

/// The same on thread ranks.
inline Course train_on(const MeshLayout& layout, const ModelConfig& config, Interval steps,
                       const CourseOptions& options = {}) {
  Course course;
  run_ranks(layout.ranks(), [&](Communicator& world) {
    Course of_rank = train_in(world, layout, config, steps, options);
    if (world.rank() == 0) course = std::move(of_rank);
  });
  return course;
}

/// Losses, norms (relatively) and weights to 1e-5. `course` began `first` steps after `alone`.
inline void expect_close(const Course& course, const Course& alone, size_t first = 0) {
  ASSERT_EQ(course.losses.size() + first, alone.losses.size());
  for (size_t i = 0; i < course.losses.size(); ++i) {
    ASSERT_NEAR(course.losses[i], alone.losses[first + i], 1e-5) << "loss of step " << first + i;
    ASSERT_NEAR(course.norms[i], alone.norms[first + i], 1e-5 * alone.norms[first + i]) << "norm of " << first + i;
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

// The weights of these models begin so large that the rounding of one step hardly grows in thirty: with the usual
// standard deviation of 0.02 the norms of six layers differ by 1e-4 as soon as gradients are added in another order.
inline constexpr double kMeshInit = 0.1;

/// Queries, keys and values of groups, with norms of heads; a tied head, and a vocabulary that no number of ranks
/// divides: for 8 ranks 8 tokens each, and 5 for the last one.
inline ModelConfig dense_mesh_model(int layers = 2) {
  return ModelConfig::from_json({{"model_type", "qwen3"},
                                 {"vocab_size", kMeshVocabulary},
                                 {"hidden_size", 32},
                                 {"intermediate_size", 48},
                                 {"num_hidden_layers", layers},
                                 {"num_attention_heads", 8},
                                 {"num_key_value_heads", 2},
                                 {"head_dim", 8},
                                 {"initializer_range", kMeshInit},
                                 {"max_position_embeddings", 16},
                                 {"tie_word_embeddings", true}});
}

/// Learned positions, and biases of norms and products: those behind sums over ranks count once.
inline ModelConfig biased_mesh_model(int layers = 2) {
  return ModelConfig::from_json({{"model_type", "gpt2"},
                                 {"vocab_size", kMeshVocabulary},
                                 {"n_embd", 32},
                                 {"n_layer", layers},
                                 {"n_head", 8},
                                 {"initializer_range", kMeshInit},
                                 {"n_positions", 16}});
}

/// In turn a dense layer, and one of 8 experts with a shared expert behind a gate; the loss balances the experts.
inline ModelConfig expert_mesh_model(int layers = 2) {
  std::vector<int> dense;
  for (int layer = 0; layer < layers; layer += 2) dense.push_back(layer);
  return ModelConfig::from_json({{"model_type", "qwen2_moe"},
                                 {"vocab_size", kMeshVocabulary},
                                 {"hidden_size", 32},
                                 {"intermediate_size", 48},
                                 {"num_hidden_layers", layers},
                                 {"num_attention_heads", 8},
                                 {"num_key_value_heads", 8},
                                 {"initializer_range", kMeshInit},
                                 {"max_position_embeddings", 16},
                                 {"num_experts", 8},
                                 {"num_experts_per_tok", 2},
                                 {"moe_intermediate_size", 16},
                                 {"shared_expert_intermediate_size", 24},
                                 {"mlp_only_layers", dense},
                                 {"norm_topk_prob", true},
                                 {"output_router_logits", true},
                                 {"router_aux_loss_coef", 0.01},
                                 {"tie_word_embeddings", false}});
}

/// The last logits of a prompt, and of a token behind it, as some rank sees them.
inline std::vector<float> cached_logits(const MeshLayout& layout, const ModelConfig& config) {
  std::vector<float> logits;
  run_ranks(layout.ranks(), [&](Communicator& world) {
    Sharing rank = layout.rank(world, config);
    rank.model.load(InitialState(3));
    DecoderCache cache = rank.decoder.make_cache(rank.context, 12, DType::f32);
    const std::vector<int32_t> prompt{5, 60, 17, 0, 2}, next{33};
    rank.decoder.next_logits(rank.context, std::array{NextTokens{0, prompt}}, cache);
    const Tensor last = rank.decoder.next_logits(rank.context, std::array{NextTokens{0, next}}, cache);
    if (world.rank() == world.size() - 1) logits = last.to_vector<float>();
  });
  return logits;
}

/// The gradients of a step so far, of all Units, the whole tensors on every rank. They are discarded. Collective.
inline std::vector<float> take_gradients(Sharing& rank) {
  std::vector<float> all;
  for (size_t unit = 0; unit < rank.decoder.units().size(); ++unit)
    for (const Tensor& gradient : rank.model.gather_gradients(unit)) {
      if (!gradient) continue;  // that of what is never trained
      const std::vector<float> values = rank.context.to_host<float>(gradient);
      all.insert(all.end(), values.begin(), values.end());
    }
  rank.model.discard_gradients();
  return all;
}

/// A parameter of tests that run models of several families.
struct Family {
  const char* name;
  ModelConfig (*config)(int layers);
};
inline std::ostream& operator<<(std::ostream& out, const Family& family) { return out << family.name; }

}  // namespace nought::test
