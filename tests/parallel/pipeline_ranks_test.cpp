// Where the stages of a pipeline are: plain data, so no mesh is needed.
#include "nought/parallel/pipeline_ranks.h"

#include <vector>

#include <gtest/gtest.h>

namespace nought::pipeline_ranks_test {
namespace {

std::vector<int> ranks_of_stages(bool v_shaped) {
  PipelineRanks ranks;
  ranks.ranks = 3;
  ranks.cut = {.chunks = 2, .v_shaped = v_shaped};
  std::vector<int> holders;
  for (int stage = 0; stage < ranks.stages(); ++stage) {
    holders.push_back(ranks.rank_of(stage));
    EXPECT_EQ(ranks.stage_of(stage / ranks.ranks, holders.back()), stage);
  }
  return holders;
}

TEST(PipelineRanks, stages_go_round_the_ranks_or_there_and_back) {
  EXPECT_EQ(ranks_of_stages(false), (std::vector{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(ranks_of_stages(true), (std::vector{0, 1, 2, 2, 1, 0}));
}

TEST(PipelineRanks, one_rank_has_one_stage) {
  const PipelineRanks one;
  EXPECT_FALSE(one.several());
  EXPECT_EQ(one.stages(), 1);
  EXPECT_EQ(one.last_stage(), 0);
}

}  // namespace
}  // namespace nought::pipeline_ranks_test
