#include "nought/kernels/grouping.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/tensor/random.h"

namespace nought::grouping_test {
namespace {

TEST(Grouping, blocks_are_padded_by_a_sixteenth_at_most_and_have_few_sizes) {
  EXPECT_EQ(padded_rows(0), 0);
  std::vector<int64_t> sizes;
  for (int64_t tokens = 1; tokens <= 5000; ++tokens) {
    const int64_t rows = padded_rows(tokens);
    ASSERT_GE(rows, tokens);
    ASSERT_LE(rows, tokens + std::max<int64_t>(7, tokens / 16)) << tokens;
    if (tokens > 2048 && tokens <= 4096 && (sizes.empty() || sizes.back() != rows)) sizes.push_back(rows);
  }
  EXPECT_EQ(sizes.size(), 16u);
}

TEST(Grouping, blocks_lie_one_behind_the_other_and_take_no_more_than_the_capacity) {
  const std::vector<int64_t> counts{3, 0, 20, 9};
  EXPECT_THAT(expert_blocks<int64_t>(counts, 0),
              testing::ElementsAre(Interval{0, 8}, Interval{8, 8}, Interval{8, 32}, Interval{32, 48}));
  EXPECT_THAT(expert_blocks<int64_t>(counts, 9),
              testing::ElementsAre(Interval{0, 8}, Interval{8, 8}, Interval{8, 24}, Interval{24, 40}));
}

TEST(Grouping, there_is_room_for_all_rows_however_choices_are_spread) {
  uint64_t draw = 0;
  const auto below = [&](int64_t limit) {
    return static_cast<int64_t>(philox(1, ++draw)[0] % static_cast<uint32_t>(limit));
  };
  for (int round = 0; round < 2000; ++round) {
    const int64_t experts = 1 + below(9), choices = below(round % 2 ? 40 : 4000);
    std::vector<int64_t> counts(static_cast<size_t>(experts));
    // Now and then most go to the first few.
    const int64_t used = 1 + below(experts);
    for (int64_t i = 0; i < choices; ++i) ++counts[static_cast<size_t>(below(used))];
    for (const int64_t capacity : {int64_t{0}, 1 + below(500), choices + 1})
      ASSERT_LE(expert_blocks<int64_t>(counts, capacity).back().end, most_rows(choices, experts, capacity))
          << choices << " choices of " << experts << " experts, capacity " << capacity;
  }
  EXPECT_EQ(most_rows(0, 4, 0), 0);
}

}  // namespace
}  // namespace nought::grouping_test
