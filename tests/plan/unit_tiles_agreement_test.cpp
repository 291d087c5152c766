// What is predicted of runs whose Units have tiles is what happens; they need room for a tile where others need it for
// a Unit, and send as much.
#include <tuple>

#include "support/agreement.h"
#include "support/size.h"
#include "support/sweep.h"
#include <gtest/gtest.h>

namespace nought::unit_tiles_agreement_test {
namespace {

NOUGHT_FILE_SIZE(medium);

using test::expect_agreement;
using test::measure;
using test::Measurement;
using test::model_of;

Layout layout_of(int ranks, int stage, Recompute mode, int64_t tiles) {
  Layout layout{.ranks = ranks, .zero_stage = stage, .micro_batch = 2, .seq_length = 64, .accumulation = 2};
  layout.wire = Wire::threads;
  layout.sharding.reduce_bucket = 1 << 20;
  layout.recompute.mode = mode, layout.recompute.unit_tiles = tiles;
  return layout;
}

/// Bytes that the rank sends in collectives of one kind, but for the padding of segments.
void expect_bytes(Collective::Kind collective, const Traffic& traffic, int64_t bytes) {
  const auto sent = static_cast<double>(traffic.counts[static_cast<size_t>(collective)].bytes);
  EXPECT_NEAR(sent, static_cast<double>(bytes), 0.02 * static_cast<double>(bytes)) << name_of(collective);
}

void expect_agrees_and_sends_as_much(const ModelConfig& config, const Layout& tiled) {
  const Measurement measured = measure(config, tiled);
  const Prediction predicted = predict(config, tiled);
  expect_agreement(predicted, measured);
  EXPECT_EQ(measured.late_allocations, 0);
  Layout whole = tiled;
  whole.recompute.unit_tiles = 1;
  const Prediction of_whole = predict(config, whole);
  EXPECT_LT(predicted.memory.peak_total, of_whole.memory.peak_total);
  const auto of = [&](Collective::Kind collective) {
    return of_whole.traffic.counts[static_cast<size_t>(collective)].bytes;
  };
  expect_bytes(Collective::all_gather, predicted.traffic, of(Collective::all_gather));
  // The gradients of a tied table are reduced once behind the head, and once behind the embedding.
  const int64_t table = config.tie_word_embeddings ? 4 * config.vocab_size * config.hidden_size : 0;
  expect_bytes(Collective::reduce_scatter, predicted.traffic,
               of(Collective::reduce_scatter) + tiled.accumulation * table * (tiled.ranks - 1) / tiled.ranks);
}

TEST(UnitTilesAgreement, holds_in_every_recompute_mode_at_stages_2_and_3) {
  int turn = 0;
  for (const auto& [family, mode, stage] : {std::tuple("llama", Recompute::none, 3),
                                            {"llama", Recompute::full, 3},
                                            {"llama", Recompute::selective, 2},
                                            {"gpt2", Recompute::full, 2},
                                            {"gpt2", Recompute::selective, 3}}) {
    if (!test::samples(turn++, 2)) continue;
    SCOPED_TRACE(fmt::format("{}, {}, stage {}", family, name_of(mode), stage));
    expect_agrees_and_sends_as_much(model_of(family), layout_of(2, stage, mode, 3));
  }
}

/// With full recompute the tiles of experts, and of blocks that end in a norm, are gathered once more.
NOUGHT_SIZE(long);
TEST(UnitTilesAgreement, holds_for_experts_and_meshes) {
  for (const auto& [family, mode] : {std::pair("mixtral", Recompute::full), {"gpt_oss", Recompute::selective}}) {
    SCOPED_TRACE(fmt::format("{}, {}", family, name_of(mode)));
    const Layout layout = layout_of(2, 3, mode, 4);
    Layout whole = layout;
    whole.recompute.unit_tiles = 1;
    const Measurement measured = measure(model_of(family), layout);
    expect_agreement(predict(model_of(family), layout), measured);
    EXPECT_EQ(measured.late_allocations, 0);
    const auto gathered = [](const Traffic& traffic) {
      return static_cast<double>(traffic.counts[static_cast<size_t>(Collective::all_gather)].bytes);
    };
    const double most = mode == Recompute::full ? 1.5 : 1.01;
    EXPECT_LE(gathered(measured.traffic), most * gathered(predict(model_of(family), whole).traffic));
  }
  Layout sharing = layout_of(4, 3, Recompute::full, 2);
  sharing.tensor_ranks = 2, sharing.micro_batch = 3;
  const Measurement measured = measure(model_of("llama"), sharing);
  expect_agreement(predict(model_of("llama"), sharing), measured);
}

/// A model whose MLPs are nearly all of it.
ModelConfig wide_model() {
  return ModelConfig::from_json({{"model_type", "llama"},
                                 {"vocab_size", 512},
                                 {"hidden_size", 128},
                                 {"intermediate_size", 4096},
                                 {"num_hidden_layers", 3},
                                 {"num_attention_heads", 4},
                                 {"num_key_value_heads", 2},
                                 {"max_position_embeddings", 128}});
}

/// At stage 3 two neighbours in the order of the passes are whole at a time, and the gradients of two are.
TEST(UnitTilesAgreement, working_memory_is_that_of_two_tiles) {
  const ModelConfig config = wide_model();
  const int64_t mlp = 3 * 128 * 4096, attention = 128 * (128 + 64 + 64 + 128) + 256;
  for (const Recompute mode : {Recompute::none, Recompute::full})
    for (const int64_t tiles : {2, 8}) {
      if (!test::samples((tiles == 8) + (mode == Recompute::full), 2)) continue;
      SCOPED_TRACE(fmt::format("{} tiles, {}", tiles, name_of(mode)));
      Layout layout = layout_of(2, 3, mode, tiles);
      layout.micro_batch = 1;
      const Measurement measured = measure(config, layout);
      expect_agreement(predict(config, layout), measured);
      const auto above = [&](Category category) {
        const auto c = static_cast<size_t>(category);
        return measured.memory.peak[c] - measured.steady[c];
      };
      const int64_t tile = mlp / tiles, padding = 4 * 4096;
      EXPECT_GE(above(Category::parameters), 4 * 2 * tile);
      EXPECT_LE(above(Category::parameters), 4 * (2 * tile + 2 * attention) + padding);
      EXPECT_LE(above(Category::gradients), 4 * std::max(3 * tile, 6 * attention) + padding) << "and their shards";
    }
}

}  // namespace
}  // namespace nought::unit_tiles_agreement_test
