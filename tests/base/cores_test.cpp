#include "nought/base/cores.h"

#include <gtest/gtest.h>

namespace nought::cores_test {
namespace {

TEST(Cores, threads_that_are_more_share_them) {
  const Cores two{.machine = 2, .usable = 2};
  EXPECT_EQ(cores_for_each(two, 1), 1);
  EXPECT_EQ(cores_for_each(two, 2), 1);
  EXPECT_EQ(cores_for_each(two, 4), 0.5);
}

TEST(Cores, are_divided_between_ranks_unless_these_are_bound) {
  EXPECT_EQ(divide_cores({.machine = 8, .usable = 8}, 2), 4);
  EXPECT_EQ(divide_cores({.machine = 8, .usable = 2}, 2), 2);
  EXPECT_EQ(divide_cores({.machine = 2, .usable = 2}, 4), 1);
  EXPECT_GE(find_cores().usable, 1);
}

}  // namespace
}  // namespace nought::cores_test
