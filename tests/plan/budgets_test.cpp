// What a run's budgets hold.
#include "nought/plan/budgets.h"

#include "support/resolved.h"
#include <gtest/gtest.h>

namespace nought::budgets_test {
namespace {

TEST(MemoryBudgets, hold_what_is_no_larger_in_each_kind_of_memory) {
  const RunPlan plan =
      test::plan_of(test::kExampleRun, 1, {"training.device_memory=1KiB", "training.host_memory=2KiB"});
  const MemoryBudgets budgets = budgets_of(plan);
  EXPECT_FALSE(budgets.none());
  EXPECT_TRUE(budgets.hold({.peak_total = 1024, .ram_peak = 2048}));
  EXPECT_FALSE(budgets.hold({.peak_total = 1025}));
  EXPECT_FALSE(budgets.hold({.ram_peak = 2049}));
  EXPECT_TRUE(budgets_of(test::plan_of(test::kExampleRun)).none());
}

}  // namespace
}  // namespace nought::budgets_test
