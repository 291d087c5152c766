// How long collectives may take, and whether they are compared, from RUN.json and from the environment.
#include "support/environment.h"
#include "support/resolved.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::resolve_collectives_test {
namespace {

using test::error_of;
using test::plan_of;
using test::reason_of;
using test::value_of;
using testing::HasSubstr;

std::string with(const std::string& training) { return fmt::format(R"({{"training": {{{}}}}})", training); }

TEST(ResolveCollectives, the_time_limit_is_in_seconds_as_Trainers) {
  EXPECT_EQ(plan_of(with("")).collective_timeout, 1800);
  EXPECT_EQ(plan_of(with(R"("ddp_timeout": 60)")).collective_timeout, 60);
  EXPECT_THAT(error_of(with(R"("ddp_timeout": 0)")), HasSubstr("training.ddp_timeout: expected at least 1, got 0"));
  EXPECT_THAT(error_of(with(R"("ddp_timeout": 100000000)")), HasSubstr("training.ddp_timeout: expected at most"));
}

TEST(ResolveCollectives, the_variable_of_DeepSpeed_is_in_minutes_and_RUN_json_has_precedence) {
  {
    const test::Environment minutes{{"DEEPSPEED_TIMEOUT", "10"}};
    EXPECT_EQ(plan_of(with("")).collective_timeout, 600);
    EXPECT_EQ(reason_of(plan_of(with("")), "ddp_timeout"), "DEEPSPEED_TIMEOUT=10");
    EXPECT_EQ(plan_of(with(R"("ddp_timeout": 60)")).collective_timeout, 60);
  }
  for (const char* wrong : {"ten", "-1", "1.5", "99999999999999999999"}) {
    const test::Environment minutes{{"DEEPSPEED_TIMEOUT", wrong}};
    EXPECT_THAT(error_of(with("")), HasSubstr("DEEPSPEED_TIMEOUT: expected minutes"));
  }
  const test::Environment minutes{{"DEEPSPEED_TIMEOUT", "0"}};
  EXPECT_THAT(error_of(with("")), HasSubstr("DEEPSPEED_TIMEOUT: expected at least 1, got 0"));
}

TEST(ResolveCollectives, calls_are_compared_in_detail_only) {
  EXPECT_FALSE(plan_of(with("")).check_calls);
  EXPECT_TRUE(plan_of(with(R"("distributed_debug": "detail")")).check_calls);
  EXPECT_FALSE(plan_of(with(R"("distributed_debug": "info")")).check_calls);
  {
    const test::Environment debug{{"TORCH_DISTRIBUTED_DEBUG", "DETAIL"}};
    EXPECT_TRUE(plan_of(with("")).check_calls);
    EXPECT_EQ(value_of(plan_of(with("")), "distributed_debug"), "detail");
    EXPECT_FALSE(plan_of(with(R"("distributed_debug": "off")")).check_calls);
  }
  const test::Environment debug{{"TORCH_DISTRIBUTED_DEBUG", "ALL"}};
  EXPECT_THAT(error_of(with("")), HasSubstr("TORCH_DISTRIBUTED_DEBUG: expected OFF, INFO or DETAIL"));
}

}  // namespace
}  // namespace nought::resolve_collectives_test
