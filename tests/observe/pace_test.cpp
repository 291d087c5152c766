#include "nought/observe/pace.h"

#include <gtest/gtest.h>

namespace nought::pace_test {
namespace {

TEST(Pace, the_first_step_is_forgotten_when_there_are_others) {
  Pace pace;
  EXPECT_EQ(pace.seconds_for(10), 0);
  pace.add_step(8);
  EXPECT_EQ(pace.seconds_for(10), 80);
  pace.add_step(1);
  EXPECT_EQ(pace.seconds_for(10), 10);
  pace.add_step(3);
  EXPECT_EQ(pace.seconds_for(10), 20);
}

TEST(Pace, one_slow_step_changes_little_and_a_new_pace_is_learned) {
  Pace pace;
  for (int i = 0; i < 200; ++i) pace.add_step(1);
  pace.add_step(6);
  EXPECT_NEAR(pace.seconds_for(100), 104, 1e-9);
  for (int i = 0; i < 500; ++i) pace.add_step(2);
  EXPECT_NEAR(pace.seconds_for(1), 2, 1e-3);
}

TEST(Pace, is_told_after_five_steps_and_one_of_them_may_be_slow) {
  Pace pace;
  for (const double seconds : {30.0, 1.0, 1.0, 1500.0}) {
    EXPECT_FALSE(pace.knows());
    pace.add_step(seconds);
  }
  pace.add_step(1);
  EXPECT_TRUE(pace.knows());
  EXPECT_LT(pace.seconds_for(1), 2);
}

TEST(Pace, pauses_are_expected_to_come_again) {
  Pace pace;
  for (int i = 0; i < 10; ++i) pace.add_step(1);
  pace.add_pause(5);
  EXPECT_NEAR(pace.seconds_for(10), 15, 1e-9);
}

}  // namespace
}  // namespace nought::pace_test
