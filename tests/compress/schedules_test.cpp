// Schedules of compression by steps.
#include "nought/compress/schedules.h"

#include <gtest/gtest.h>

namespace nought::schedules_test {
namespace {

TEST(Schedules, a_bit_goes_after_each_period_which_doubles) {
  const BitSchedule schedule{.start_bits = 12, .target_bits = 8, .period = 10};
  EXPECT_EQ(schedule.bits_at(1), 12);
  EXPECT_EQ(schedule.bits_at(9), 12);
  EXPECT_EQ(schedule.bits_at(10), 11);
  EXPECT_EQ(schedule.bits_at(19), 11);
  EXPECT_EQ(schedule.bits_at(20), 10);
  EXPECT_EQ(schedule.bits_at(40), 9);
  EXPECT_EQ(schedule.bits_at(80), 8);
  EXPECT_EQ(schedule.bits_at(1'000'000), 8);
}

TEST(Schedules, the_unquantized_share_falls_to_nothing) {
  EXPECT_DOUBLE_EQ(unquantized_share(0.25, 1), 0.75);
  EXPECT_DOUBLE_EQ(unquantized_share(0.25, 4), 0);
  EXPECT_DOUBLE_EQ(unquantized_share(0.25, 9), 0);
}

TEST(Schedules, the_dense_share_falls_by_a_constant_factor) {
  const SparsitySchedule schedule{.begin = 10, .end = 50, .stride = 10, .target = 0.9375};
  EXPECT_FALSE(schedule.prunes_at(9));
  EXPECT_FALSE(schedule.prunes_at(15));
  EXPECT_TRUE(schedule.prunes_at(10));
  EXPECT_TRUE(schedule.prunes_at(50));
  EXPECT_FALSE(schedule.prunes_at(60));
  EXPECT_DOUBLE_EQ(schedule.at(10), 0);
  EXPECT_DOUBLE_EQ(schedule.at(20), 0.5);
  EXPECT_DOUBLE_EQ(schedule.at(30), 0.75);
  EXPECT_DOUBLE_EQ(schedule.at(50), 0.9375);
  EXPECT_DOUBLE_EQ((SparsitySchedule{.begin = 5, .end = 5, .stride = 1, .target = 0.5}).at(5), 0.5);
}

}  // namespace
}  // namespace nought::schedules_test
