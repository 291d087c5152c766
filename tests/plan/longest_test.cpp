#include "nought/plan/longest.h"

#include "support/agreement.h"
#include <gtest/gtest.h>

namespace nought {
namespace {

Layout of_ranks(int ranks) {
  Layout layout{.ranks = ranks, .zero_stage = 3, .micro_batch = 1, .accumulation = 1};
  layout.recompute.mode = Recompute::full;
  layout.wire = Wire::threads;
  return layout;
}

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
}  // namespace nought
