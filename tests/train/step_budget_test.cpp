// The number of steps follows from measured steps alone, between the fewest and the most.
#include "nought/train/step_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"

namespace nought::step_budget_test {
namespace {

using testing::HasSubstr;

constexpr StepBudget kBudget{.seconds = 150, .fewest = 100, .most = 600, .tokens_per_step = 1024};

TEST(StepBudget, as_many_steps_are_made_as_fit) {
  const StepChoice choice = choose_steps(kBudget, {{0.5, 0.4, 9}});  // the median counts
  EXPECT_EQ(choice.steps, 300);
  EXPECT_THAT(choice.reason, HasSubstr("300 of 600 steps, as so many fit into 2m30s and all would take 5m00s"));
  EXPECT_THAT(choice.reason, HasSubstr("a step takes 0.5 s (2.05K tokens/s), the median of 3 before the run"));
}

TEST(StepBudget, no_more_steps_are_made_than_the_run_has) {
  const StepChoice choice = choose_steps(kBudget, {{0.1}});
  EXPECT_EQ(choice.steps, 600);
  EXPECT_THAT(choice.reason, HasSubstr("all 600 steps, about 1m00s, as 2m30s is enough"));
  EXPECT_EQ(choose_steps(kBudget, {{0.25}}).steps, 600);  // exactly
}

TEST(StepBudget, the_fewest_steps_are_made_also_if_they_take_longer) {
  const StepChoice choice = choose_steps(kBudget, {{3.0}});
  EXPECT_EQ(choice.steps, 100);
  EXPECT_THAT(choice.reason, HasSubstr("100 of 600 steps, the fewest allowed, about 5m00s, as only 50 fit into 2m30s"));
  EXPECT_EQ(choose_steps({.seconds = 1e-3, .fewest = 1, .most = 5, .tokens_per_step = 1}, {{1e6}}).steps, 1);
}

TEST(StepBudget, bounds_that_contradict_each_other_are_refused) {
  EXPECT_THROW(choose_steps({.seconds = 1, .fewest = 7, .most = 6}, {{1}}), ConfigError);
  EXPECT_THROW(choose_steps({.seconds = 1, .fewest = 0, .most = 6}, {{1}}), ConfigError);
}

}  // namespace
}  // namespace nought::step_budget_test
