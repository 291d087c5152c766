// As few tiles are chosen as fit, and they are advised where nothing less is enough.
#include "nought/plan/fitting_tiles.h"

#include "support/size.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nought/plan/advice.h"

namespace nought::fitting_tiles_test {
namespace {

using testing::HasSubstr;

/// Its Units are large beside what a rank of 16 keeps.
ModelConfig wide_model() {
  return ModelConfig::from_json({{"model_type", "llama"},
                                 {"vocab_size", 4096},
                                 {"hidden_size", 1024},
                                 {"intermediate_size", 32768},
                                 {"num_hidden_layers", 2},
                                 {"num_attention_heads", 16},
                                 {"num_key_value_heads", 2},
                                 {"max_position_embeddings", 2048}});
}

Layout in_tiles(int64_t tiles) {
  Layout layout{.ranks = 16,
                .zero_stage = 3,
                .seq_length = 128,
                .sharding = {.dtype = DType::bf16, .gradient_dtype = DType::bf16}};
  layout.recompute.mode = Recompute::full, layout.recompute.tier.pool = Pool::host, layout.recompute.unit_tiles = tiles;
  return layout;
}

int64_t peak_of(int64_t tiles) { return predict(wide_model(), in_tiles(tiles)).memory.peak_total; }
MemoryBudgets room_of(int64_t tiles) { return {.device = peak_of(tiles)}; }

NOUGHT_SIZE(medium);
TEST(FittingTiles, are_as_few_as_bring_the_peak_down) {
  EXPECT_LT(peak_of(4), peak_of(2));
  for (const int64_t tiles : {1, 2, 4}) {
    const auto found = fewest_tiles_that_fit(wide_model(), in_tiles(1), room_of(tiles));
    ASSERT_TRUE(found);
    EXPECT_EQ(found->layout.recompute.unit_tiles, tiles);
    EXPECT_EQ(found->memory.peak_total, peak_of(tiles));
  }
  EXPECT_FALSE(fewest_tiles_that_fit(wide_model(), in_tiles(1), {.device = 1 << 20}))
      << "and 1024 tiles are more than enough";
}

TEST(FittingTiles, are_advised_where_a_unit_is_what_is_too_large) {
  const std::vector<Advice> all = changes_that_fit(wide_model(), in_tiles(1), room_of(4));
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].change, "training.memory_centric_tiling 4");
  EXPECT_EQ(all[0].prediction.memory.peak_total, peak_of(4));
  EXPECT_THAT(describe_changes(wide_model(), in_tiles(1), room_of(4)),
              HasSubstr("would fit: training.memory_centric_tiling 4, which takes"));
  for (const Advice& each : changes_that_fit(wide_model(), in_tiles(2), room_of(4)))
    EXPECT_THAT(each.change, Not(HasSubstr("tiling"))) << "the user has chosen";
  Layout whole = in_tiles(1);
  whole.sharding.optimizer.method = MuonOptions{};
  for (const Advice& each : changes_that_fit(wide_model(), whole, room_of(4)))
    EXPECT_THAT(each.change, Not(HasSubstr("tiling"))) << "Muon has no tiles";
}

TEST(FittingTiles, a_plan_gets_them_once) {
  RunPlan plan;
  plan.layout.recompute.unit_tiles = 3;
  EXPECT_EQ(with_fitting_tiles(plan).layout.recompute.unit_tiles, 3);
}

}  // namespace
}  // namespace nought::fitting_tiles_test
