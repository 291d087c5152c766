// What a run checks of itself: off unless it is asked for.
#include "support/resolved.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::resolve_checks_test {
namespace {

using test::error_of;
using test::plan_of;
using test::reason_of;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

RunPlan plan_with(const std::string& training, int ranks = 2) {
  return plan_of(fmt::format(R"({{"training": {{{}}}}})", training), ranks);
}

TEST(ResolveChecks, all_are_off_unless_they_are_asked_for) {
  const RunPlan plan = plan_with("");
  EXPECT_EQ(plan.spiky_loss_factor, 0);
  EXPECT_EQ(plan.weight_hash_interval, 0);
  EXPECT_FALSE(plan.log_straggler);
  for (const Resolved& row : plan.resolved)
    EXPECT_TRUE(row.key != "spiky_loss_factor" && row.key != "log_straggler") << "nothing to explain";
}

TEST(ResolveChecks, each_key_sets_its_own_number) {
  const RunPlan plan = plan_with(
      R"("spiky_loss_factor": 3.5, "check_weight_hash_across_dp_replicas_interval": 20, "log_straggler": true)");
  EXPECT_EQ(plan.spiky_loss_factor, 3.5);
  EXPECT_EQ(plan.weight_hash_interval, 20);
  EXPECT_TRUE(plan.log_straggler);
  EXPECT_THAT(plan.warnings, IsEmpty());
  EXPECT_EQ(reason_of(plan, "spiky_loss_factor"), "training.spiky_loss_factor");
}

TEST(ResolveChecks, a_factor_that_every_step_exceeds_and_a_negative_interval_are_refused) {
  for (const char* wrong : {"1", "0", "-2", "0.5"})
    EXPECT_THAT(error_of(fmt::format(R"({{"training": {{"spiky_loss_factor": {}}}}})", wrong)),
                HasSubstr("training.spiky_loss_factor: expected a finite number > 1"));
  EXPECT_THAT(error_of(R"({"training": {"check_weight_hash_across_dp_replicas_interval": -1}})"),
              HasSubstr("check_weight_hash_across_dp_replicas_interval: expected at least 0, got -1"));
}

TEST(ResolveChecks, one_rank_has_nothing_to_compare_itself_with) {
  EXPECT_THAT(plan_with(R"("check_weight_hash_across_dp_replicas_interval": 5)", 1).warnings,
              ElementsAre(HasSubstr("has no effect with one rank")));
  EXPECT_THAT(plan_with(R"("log_straggler": true)", 1).warnings, ElementsAre(HasSubstr("has no effect with one rank")));
  EXPECT_THAT(plan_with(R"("spiky_loss_factor": 2)", 1).warnings, IsEmpty());
}

}  // namespace
}  // namespace nought::resolve_checks_test
