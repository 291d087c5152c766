// What stays gathered at stage 3 is a number, what fits the memory budget, or nothing; and where it has no effect a
// number that somebody chose is told so.
#include "support/resolved.h"
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::resolve_live_parameters_test {
namespace {

using test::error_of;
using test::plan_of;
using test::reason_of;
using test::value_of;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kKey = "stage3_max_live_parameters";

std::string run_of(const std::string& zero, const std::string& training = "", int stage = 3) {
  return fmt::format(R"({{"training": {{{}}}, "deepspeed": {{"zero_optimization": {{"stage": {}{}{}}}}}}})", training,
                     stage, zero.empty() ? "" : ", ", zero);
}

TEST(ResolveLiveParameters, a_number_is_taken_by_either_name) {
  for (const std::string& name : {std::string("stage3_max_live_parameters"), std::string("max_live_parameters")}) {
    const RunPlan plan = plan_of(run_of(fmt::format(R"("{}": 2e8)", name)), 2);
    EXPECT_EQ(plan.layout.sharding.live.most, 200'000'000);
    EXPECT_FALSE(plan.live_fits_memory);
    EXPECT_EQ(value_of(plan, kKey), "200000000");
    EXPECT_THAT(plan.warnings, IsEmpty());
  }
  EXPECT_EQ(plan_of(run_of(R"("stage3_max_reuse_distance": 5)"), 2).layout.sharding.live.reuse_distance, 5);
  EXPECT_EQ(plan_of(run_of(R"("max_reuse_distance": 5)"), 2).layout.sharding.live.reuse_distance, 5);
  EXPECT_THAT(error_of(run_of(R"("stage3_max_live_parameters": 1, "max_live_parameters": 2)"), 2),
              HasSubstr("max_live_parameters = 2: make them equal"));
  EXPECT_THAT(error_of(run_of(R"("stage3_max_live_parameters": -1)"), 2), HasSubstr("expected at least 0, got -1"));
}

TEST(ResolveLiveParameters, without_a_number_it_is_what_fits_a_budget) {
  for (const std::string zero : {"", R"("stage3_max_live_parameters": "auto")"}) {
    EXPECT_FALSE(plan_of(run_of(zero), 2).live_fits_memory);
    EXPECT_EQ(plan_of(run_of(zero), 2).layout.sharding.live.most, 0);
    EXPECT_EQ(value_of(plan_of(run_of(zero), 2), kKey), "0");
    EXPECT_THAT(reason_of(plan_of(run_of(zero), 2), kKey), HasSubstr("no memory budget (training.device_memory)"));
    for (const std::string budget : {R"("device_memory": "1GB")", R"("host_memory": "1GB")"}) {
      EXPECT_TRUE(plan_of(run_of(zero, budget), 2).live_fits_memory);
      EXPECT_EQ(value_of(plan_of(run_of(zero, budget), 2), kKey), "auto");
    }
  }
  const std::string budget = R"("device_memory": "1GB")";
  EXPECT_TRUE(plan_of(run_of(R"("stage3_max_live_parameters": 7)", budget), 2).live_fits_memory) << "both bound it";
  EXPECT_FALSE(plan_of(run_of(R"("stage3_max_live_parameters": 0)", budget), 2).live_fits_memory);
}

TEST(ResolveLiveParameters, below_stage_3_a_number_other_than_deepspeeds_default_is_told_that_it_has_no_effect) {
  const auto warnings = [](const char* zero) { return plan_of(run_of(zero, "", 2), 2).warnings; };
  EXPECT_THAT(warnings(R"("stage3_max_live_parameters": 1e9, "stage3_max_reuse_distance": 1e9)"), IsEmpty());
  EXPECT_THAT(warnings(R"("stage3_max_live_parameters": 2e9)"),
              Contains(HasSubstr("stage3_max_live_parameters has no effect at stage 2")));
  EXPECT_THAT(warnings(R"("max_reuse_distance": 7)"), Contains(HasSubstr("max_reuse_distance has no effect")));
}

}  // namespace
}  // namespace nought::resolve_live_parameters_test
