// When a job that failed starts again, and when no more.
#include "nought/cli/restart_policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::restart_policy_test {
namespace {

using testing::HasSubstr;
using testing::Optional;

JobFailure failure(int64_t step, int64_t checkpoint) { return {step, checkpoint, "rank 1 died"}; }

TEST(RestartPolicy, pauses_grow_until_a_checkpoint_is_newer) {
  RestartPolicy policy(3, 5, 0);
  EXPECT_THAT(policy.after(failure(3, 0)), Optional(5.0));
  EXPECT_THAT(policy.after(failure(4, 0)), Optional(10.0));
  EXPECT_THAT(policy.after(failure(5, 0)), Optional(20.0));
  EXPECT_EQ(policy.left(), 0);
  EXPECT_THAT(policy.after(failure(12, 10)), Optional(5.0)) << "all restarts are there again";
  EXPECT_THAT(policy.after(failure(11, 10)), Optional(10.0)) << "that checkpoint is not newer than the last failure";
  EXPECT_EQ(policy.restart(), 2);
}

TEST(RestartPolicy, ends_when_no_restart_is_left) {
  RestartPolicy policy(1, 0, 0);
  EXPECT_THAT(policy.after(failure(3, 0)), Optional(0.0));
  EXPECT_EQ(policy.after(failure(4, 0)), std::nullopt);
  EXPECT_THAT(policy.give_up(), HasSubstr("no restart is left of 1"));
  EXPECT_THAT(policy.give_up(), HasSubstr("step 4 failed with: rank 1 died"));
}

TEST(RestartPolicy, ends_when_one_step_fails_three_times_in_a_row) {
  RestartPolicy policy(9, 1, 0);
  EXPECT_TRUE(policy.after(failure(7, 5)));
  EXPECT_TRUE(policy.after(failure(7, 6)));
  EXPECT_TRUE(policy.after(failure(8, 6))) << "another step begins the count again";
  EXPECT_TRUE(policy.after(failure(7, 6)));
  EXPECT_TRUE(policy.after(failure(7, 6)));
  EXPECT_EQ(policy.after(failure(7, 6)), std::nullopt);
  EXPECT_THAT(policy.give_up(), HasSubstr("step 7 failed 3 times in a row, the last time with: rank 1 died"));
}

TEST(RestartPolicy, a_checkpoint_of_before_is_no_progress) {
  RestartPolicy policy(2, 1, 20);
  EXPECT_TRUE(policy.after(failure(23, 20)));
  EXPECT_TRUE(policy.after(failure(22, 20)));
  EXPECT_FALSE(policy.after(failure(24, 20)));
  RestartPolicy none(0, 1, 0);
  EXPECT_FALSE(none.after(failure(1, 0)));
}

TEST(RestartPolicy, pauses_have_a_longest) {
  RestartPolicy policy(20, 400, 0);
  EXPECT_THAT(policy.after(failure(1, 0)), Optional(400.0));
  EXPECT_THAT(policy.after(failure(2, 0)), Optional(RestartPolicy::kLongestPause));
}

}  // namespace
}  // namespace nought::restart_policy_test
