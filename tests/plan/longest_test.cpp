#include "nought/plan/longest.h"

#include "support/agreement.h"
#include "support/size.h"
#include <gtest/gtest.h>

namespace nought::longest_test {
namespace {

Layout of_ranks(int ranks) {
  Layout layout{.ranks = ranks, .zero_stage = 3, .micro_batch = 1, .accumulation = 1};
  layout.recompute.mode = Recompute::full;
  layout.wire = Wire::threads;
  return layout;
}

NOUGHT_SIZE(medium);
TEST(Longest, more_ranks_per_sequence_fit_a_longer_one) {
  const ModelConfig config = test::model_of("llama");
  const int64_t budget = 64 * test::kMiB;
  const std::vector<LongestSequence> all = longest_sequences(config, of_ranks(4), budget);
  ASSERT_EQ(all.size(), 3U);
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].context_ranks, 1 << i);
    EXPECT_GT(all[i].length, 0);
    EXPECT_LE(all[i].peak, budget);
    Layout longer = of_ranks(4);
    longer.context_ranks = all[i].context_ranks;
    longer.seq_length = all[i].length + all[i].length / 16 + 2 * kLengthStep;
    EXPECT_GT(predict(config, longer).memory.peak_total, budget) << "it is the longest";
    if (i == 0) continue;
    EXPECT_GT(static_cast<double>(all[i].length), 1.6 * static_cast<double>(all[i - 1].length));
  }
}

NOUGHT_SIZE(medium);
TEST(Longest, mlps_in_tiles_fit_a_longer_one) {
  const ModelConfig config = ModelConfig::from_json({{"model_type", "llama"},
                                                     {"vocab_size", 64},
                                                     {"hidden_size", 64},
                                                     {"intermediate_size", 512},
                                                     {"num_hidden_layers", 2},
                                                     {"num_attention_heads", 4},
                                                     {"max_position_embeddings", 128}});
  const int64_t budget = 64 * test::kMiB;
  for (const LongestSequence& each : longest_sequences(config, of_ranks(2), budget)) {
    ASSERT_TRUE(each.tiled);
    EXPECT_GT(2 * *each.tiled, 3 * each.length) << each.context_ranks;
    Layout tiled = of_ranks(2);
    tiled.context_ranks = each.context_ranks, tiled.seq_length = *each.tiled, tiled.recompute.mlp_tiles = 0;
    EXPECT_LE(predict(config, tiled).memory.peak_total, budget);
  }
  Layout tiled = of_ranks(1);
  tiled.recompute.mlp_tiles = 4;
  EXPECT_FALSE(longest_sequences(config, tiled, budget).front().tiled) << "the run is in tiles already";
}

TEST(Longest, learned_positions_and_small_budgets_are_ends) {
  const std::vector<LongestSequence> small = longest_sequences(test::model_of("llama"), of_ranks(2), test::kMiB);
  EXPECT_EQ(small.front().length, 0);
  Json json{{"model_type", "gpt2"}, {"vocab_size", 64}, {"n_embd", 32},
            {"n_layer", 1},         {"n_head", 4},      {"n_positions", 700}};
  const std::vector<LongestSequence> learned =
      longest_sequences(ModelConfig::from_json(json), of_ranks(2), 1024 * test::kMiB);
  EXPECT_EQ(learned.back().length, 512);
  EXPECT_TRUE(learned.back().by_positions);
}

}  // namespace
}  // namespace nought::longest_test
