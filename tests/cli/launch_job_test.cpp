#include "nought/cli/launch_job.h"

#include <cstdlib>

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

TEST(StdoutColumns, a_rank_has_the_terminal_that_the_launcher_had) {
  const auto of_rank = [](const char* told) {
    setenv("OMPI_COMM_WORLD_RANK", "0", 1), setenv("OMPI_COMM_WORLD_SIZE", "1", 1);
    setenv(kColumnsVariable, told, 1);
    const int columns = stdout_columns();
    for (const char* name : {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", kColumnsVariable}) unsetenv(name);
    return columns;
  };
  EXPECT_EQ(of_rank("0"), 0);
  EXPECT_GT(of_rank("97"), 0) << "97, or what the controlling terminal of this test has now";
}

TEST(PlaceOfTorchrun, several_ranks_under_its_names_are_seen) {
  const auto set = [](const char* rank, const char* size) {
    rank == nullptr ? unsetenv("RANK") : setenv("RANK", rank, 1);
    size == nullptr ? unsetenv("WORLD_SIZE") : setenv("WORLD_SIZE", size, 1);
  };
  set("1", "4");
  const std::optional<JobPlace> place = place_of_torchrun();
  ASSERT_TRUE(place);
  EXPECT_EQ(place->rank, 1);
  EXPECT_EQ(place->size, 4);
  set("0", "1");
  EXPECT_FALSE(place_of_torchrun()) << "one process of its own";
  set(nullptr, "4");
  EXPECT_FALSE(place_of_torchrun()) << "somebody's variable";
  set(nullptr, nullptr);
  EXPECT_FALSE(place_of_torchrun());
}

}  // namespace
}  // namespace nought
