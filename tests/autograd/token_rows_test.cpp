// Runs of tokens whose rows are replaced; their logits and gradients are those of a table with these rows, as
// AdapterGolden shows of whole models.
#include "nought/autograd/token_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::token_rows_test {
namespace {

using testing::ElementsAre;

std::vector<std::vector<int64_t>> runs(const std::vector<int32_t>& tokens, Interval held) {
  std::vector<std::vector<int64_t>> all;
  for (const TokenRows::Run& run : runs_of(tokens, held)) all.push_back({run.row, run.column, run.count});
  return all;
}

TEST(TokenRows, neighbours_are_one_run_within_the_part_of_a_rank) {
  using Run = std::vector<int64_t>;
  EXPECT_THAT(runs({5, 6, 7, 40, 65, 66}, {0, 67}), ElementsAre(Run{0, 5, 3}, Run{3, 40, 1}, Run{4, 65, 2}));
  EXPECT_THAT(runs({5, 6, 7, 40, 65, 66}, {6, 41}), ElementsAre(Run{1, 0, 2}, Run{3, 34, 1}));
  EXPECT_THAT(runs({7, 6, 8}, {0, 10}), ElementsAre(Run{0, 7, 1}, Run{1, 6, 1}, Run{2, 8, 1}));
  EXPECT_THAT(runs({7}, {8, 10}), ElementsAre());
}

}  // namespace
}  // namespace nought::token_rows_test
