#include "nought/base/math.h"

#include <gtest/gtest.h>

namespace nought::math_test {
namespace {

TEST(Math, quotients_are_rounded_up) {
  EXPECT_EQ(ceil_div(0, 8), 0);
  EXPECT_EQ(ceil_div(8, 8), 1);
  EXPECT_EQ(ceil_div(9, 8), 2);
  EXPECT_EQ(round_up(13, 8), 16);
  EXPECT_EQ(round_up(16, 8), 16);
  EXPECT_EQ(round_up(0, 8), 0);
}

TEST(Math, intervals_meet_or_do_not) {
  EXPECT_EQ(intersect({0, 10}, {5, 20}), (Interval{5, 10}));
  EXPECT_EQ(intersect({5, 20}, {0, 10}), (Interval{5, 10}));
  EXPECT_EQ(intersect({0, 10}, {3, 4}), (Interval{3, 4}));
  for (const Interval& apart : {Interval{5, 9}, Interval{7, 9}, Interval{2, 2}}) {
    const Interval none = intersect({0, 5}, apart);
    EXPECT_TRUE(none.empty());
    EXPECT_EQ(none.size(), 0);
  }
}

}  // namespace
}  // namespace nought::math_test
