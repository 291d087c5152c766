#include "nought/cli/launch_job.h"

#include "support/environment.h"
#include "support/size.h"
#include <gtest/gtest.h>

namespace nought::launch_job_test {
namespace {

NOUGHT_FILE_SIZE(small);

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

TEST(StdoutColumns, a_rank_has_the_terminal_that_the_launcher_had) {
  const auto of_rank = [](const char* told) {
    const test::Environment rank{
        {"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}, {kColumnsVariable, told}};
    return stdout_columns();
  };
  EXPECT_EQ(of_rank("0"), 0);
  EXPECT_GT(of_rank("97"), 0) << "97, or what the controlling terminal of this test has now";
}

TEST(PlaceOfTorchrun, several_ranks_under_its_names_are_seen) {
  const auto place_with = [](const char* rank, const char* size) {
    const test::Environment names{{"RANK", rank}, {"WORLD_SIZE", size}};
    return place_of_torchrun();
  };
  const std::optional<JobPlace> place = place_with("1", "4");
  ASSERT_TRUE(place);
  EXPECT_EQ(place->rank, 1);
  EXPECT_EQ(place->size, 4);
  EXPECT_FALSE(place_with("0", "1")) << "one process of its own";
  EXPECT_FALSE(place_with("", "4")) << "somebody's variable";
  EXPECT_FALSE(place_with("", ""));
}

}  // namespace
}  // namespace nought::launch_job_test
