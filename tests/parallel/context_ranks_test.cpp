// Which tokens ranks have of a sequence: plain data, so no mesh is needed.
#include "nought/parallel/context_ranks.h"

#include <algorithm>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::context_ranks_test {
namespace {

using testing::ElementsAre;

ContextTokens over(int ranks, int64_t rows, int64_t length) {
  ContextTokens tokens{.rows = rows, .length = length};
  tokens.ranks.ranks = ranks;
  return tokens;
}

TEST(ContextRanks, sixteen_tokens_lie_in_zig_zag) {
  const ContextTokens tokens = over(4, 1, 16);
  EXPECT_THAT(tokens.indices(0), ElementsAre(0, 1, 14, 15));
  EXPECT_THAT(tokens.indices(1), ElementsAre(2, 3, 12, 13));
  EXPECT_THAT(tokens.indices(3), ElementsAre(6, 7, 8, 9));
}

TEST(ContextRanks, every_token_is_held_once) {
  for (const int ranks : {1, 2, 3, 4})
    for (const int64_t length : {1, 7, 16, 37}) {
      const ContextTokens tokens = over(ranks, 3, length);
      std::vector<int32_t> all;
      for (int rank = 0; rank < ranks; ++rank) {
        const std::vector<int32_t> held = tokens.indices(rank);
        EXPECT_EQ(std::ssize(held), tokens.tokens(rank));
        all.insert(all.end(), held.begin(), held.end());
      }
      std::sort(all.begin(), all.end());
      std::vector<int32_t> expected(static_cast<size_t>(3 * length));
      std::iota(expected.begin(), expected.end(), 0);
      EXPECT_EQ(all, expected) << ranks << " ranks, " << length << " tokens";
    }
}

TEST(ContextRanks, causal_work_is_even) {
  const ContextTokens tokens = over(4, 1, 16);
  for (int rank = 0; rank < 4; ++rank) {
    int64_t pairs = 0;
    for (const int32_t position : tokens.indices(rank)) pairs += position + 1;
    EXPECT_EQ(pairs, 34);
  }
}

}  // namespace
}  // namespace nought::context_ranks_test
