// What is predicted of runs with MLPs in tiles of tokens is what happens; they need less memory and send as much.
#include "support/agreement.h"
#include "support/size.h"
#include <gtest/gtest.h>

namespace nought::tiled_mlp_agreement_test {
namespace {

NOUGHT_FILE_SIZE(medium);

using test::expect_agreement;
using test::measure;
using test::Measurement;
using test::model_of;

/// 256 tokens of a hidden size of 128: two tiles, or as many as are asked.
Layout layout_of(int ranks, int stage, Recompute mode, int64_t tiles) {
  Layout layout{.ranks = ranks, .zero_stage = stage, .micro_batch = 4, .seq_length = 64};
  layout.wire = Wire::threads;
  layout.recompute.mode = mode, layout.recompute.mlp_tiles = tiles;
  return layout;
}

void expect_less(const ModelConfig& config, const Layout& tiled) {
  Layout whole = tiled;
  whole.recompute.mlp_tiles = 1;
  const Measurement measured = measure(config, tiled);
  const Prediction predicted = predict(config, tiled), of_whole = predict(config, whole);
  expect_agreement(predicted, measured);
  EXPECT_EQ(measured.late_allocations, 0);
  const auto activations = static_cast<size_t>(Category::activations);
  EXPECT_LT(predicted.memory.peak[activations], of_whole.memory.peak[activations]);
  EXPECT_LE(predicted.memory.peak_total, of_whole.memory.peak_total);
  test::expect_same_traffic(predicted.traffic, of_whole.traffic);  // one gather of a Unit serves all tiles
}

TEST(TiledMlpAgreement, holds_in_every_recompute_mode_at_every_stage) {
  int stage = 0;
  for (const char* family : {"llama", "gpt2"})
    for (const Recompute mode : {Recompute::none, Recompute::selective, Recompute::full}) {
      SCOPED_TRACE(fmt::format("{}, {}, stage {}", family, name_of(mode), stage % 4));
      expect_less(model_of(family), layout_of(2, stage % 4, mode, stage % 2 == 0 ? 0 : 7));
      ++stage;
    }
  expect_less(model_of("deepseek_v2"), layout_of(2, 2, Recompute::selective, 0));  // a dense layer, shared experts
}

TEST(TiledMlpAgreement, holds_beside_ranks_that_share_matrices_and_sequences) {
  for (const auto& [slices, context] : {std::pair(false, 2), {true, 1}, {true, 2}}) {
    SCOPED_TRACE(fmt::format("{} share sequences{}", context, slices ? ", slices" : ""));
    Layout layout = layout_of(4, 3, slices ? Recompute::none : Recompute::selective, 0);
    layout.tensor_ranks = 2, layout.sequence_parallel = slices, layout.context_ranks = context;
    layout.micro_batch = 2 * context + 1;
    expect_less(model_of("llama"), layout);
  }
}

/// Without recomputation a layer of gate and up keeps 3 f elements less of each token.
TEST(TiledMlpAgreement, a_layer_keeps_none_of_the_elements_of_its_mlp) {
  const ModelConfig config = model_of("llama");
  const auto activations = [&](int64_t tiles) {
    const Layout layout = layout_of(1, 0, Recompute::none, tiles);
    return predict(config, layout).memory.peak[static_cast<size_t>(Category::activations)];
  };
  const int64_t of_layer = 256 * 3 * config.intermediate_size * 4, less = activations(1) - activations(64);
  EXPECT_GT(less, 97 * config.num_layers * of_layer / 100);
  EXPECT_LT(less, (config.num_layers + 1) * of_layer) << "and what the backward pass of one layer makes";
}

/// Logits are made in chunks of 64 MiB, of what a rank has of the tokens and of the vocabulary: those of 24,576 tokens
/// more would take 1.5 GiB and more here.
TEST(TiledMlpAgreement, the_head_needs_no_more_memory_for_longer_rows) {
  ModelConfig config = model_of("llama");
  config.vocab_size = 64000;
  const auto workspace = [&](int64_t length, int tensor, int context) {
    Layout layout = layout_of(4, 3, Recompute::full, 0);
    layout.tensor_ranks = tensor, layout.context_ranks = context, layout.sequence_parallel = tensor > 1;
    layout.micro_batch = 1, layout.seq_length = length, layout.accumulation = 1;
    return predict(config, layout).memory.peak[static_cast<size_t>(Category::workspace)];
  };
  for (const auto& [tensor, context] : {std::pair(1, 1), {2, 1}, {1, 2}, {2, 2}}) {
    SCOPED_TRACE(fmt::format("{} share matrices, {} sequences", tensor, context));
    const int64_t more = workspace(32768, tensor, context) - workspace(8192, tensor, context);
    EXPECT_LE(more, 24576 / context * 2 * config.hidden_size * 4);
  }
}

}  // namespace
}  // namespace nought::tiled_mlp_agreement_test
