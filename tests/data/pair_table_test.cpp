#include "nought/text/pair_table.h"

#include <gtest/gtest.h>

namespace nought::pair_table_test {
namespace {

TEST(PairTable, finds_what_was_given_and_nothing_else) {
  constexpr int32_t kSide = 40;
  PairTable table(kSide * kSide / 2);
  for (int32_t left = 0; left < kSide; ++left)
    for (int32_t right = left % 2; right < kSide; right += 2)
      table.insert(left, right, static_cast<uint32_t>(left * kSide + right), 1000 + left);
  for (int32_t left = 0; left < kSide; ++left)
    for (int32_t right = 0; right < kSide; ++right) {
      const PairTable::Entry& entry = table(left, right);
      const bool given = (left + right) % 2 == 0;
      ASSERT_EQ(entry.rank, given ? static_cast<uint32_t>(left * kSide + right) : PairTable::kNoRank);
      ASSERT_EQ(entry.merged, given ? 1000 + left : -1);
    }
}

TEST(PairTable, order_matters_and_the_last_rank_counts) {
  PairTable table(2);
  table.insert(1, 2, 7, 3);
  EXPECT_EQ(table(2, 1).rank, PairTable::kNoRank);
  table.insert(1, 2, 4, 9);
  EXPECT_EQ(table(1, 2).rank, 4u);
  EXPECT_EQ(table(1, 2).merged, 9);
}

TEST(PairTable, an_empty_one_merges_nothing) { EXPECT_EQ(PairTable(0)(0, 0).rank, PairTable::kNoRank); }

}  // namespace
}  // namespace nought::pair_table_test
