#include "nought/cli/launch_job.h"

#include <gtest/gtest.h>

namespace nought {
namespace {

TEST(DivideCores, ranks_share_the_cores_and_have_one_at_least) {
  EXPECT_EQ(divide_cores({8, 8}, 1), 8);
  EXPECT_EQ(divide_cores({8, 8}, 3), 2);
  EXPECT_EQ(divide_cores({2, 2}, 4), 1);
}

TEST(DivideCores, a_bound_rank_uses_what_it_is_bound_to) {
  EXPECT_EQ(divide_cores({8, 4}, 2), 4);
  EXPECT_EQ(divide_cores({8, 1}, 2), 1);
  EXPECT_EQ(divide_cores({8, 6}, 1), 6);
}

}  // namespace
}  // namespace nought
