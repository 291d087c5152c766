// Where parameters live: what DeepSpeed's keys come to, and what is refused.
#include "support/message_of.h"
#include "support/resolved.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"

namespace nought::resolve_offload_param_test {
namespace {

using test::message_of;
using test::plan_of_zero;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string nvme(const std::string& keys, int stage = 3) {
  return fmt::format(R"({{"stage": {}, "offload_param": {{"device": "nvme", "nvme_path": "/fast"{}}}}})", stage, keys);
}

TEST(ResolveOffloadParam, the_device_is_the_default_and_auto_at_every_stage) {
  for (const char* zero :
       {"{}", R"({"stage": 2, "offload_param": {"device": "none"}})", R"({"offload_param": {"device": "auto"}})",
        R"({"stage": 3, "offload_param": {"device": null, "nvme_path": null, "buffer_count": 7, "max_in_cpu": 5}})"}) {
    const RunPlan plan = plan_of_zero(zero);
    EXPECT_EQ(plan.layout.sharding.offload_param.tier.pool, Pool::device) << zero;
    EXPECT_THAT(plan.warnings, IsEmpty()) << zero;
  }
}

TEST(ResolveOffloadParam, to_the_host_makes_no_copy_on_a_cpu_and_says_so) {
  const RunPlan plan = plan_of_zero(R"({"stage": 3, "offload_param": {"device": "cpu", "pin_memory": true}})");
  EXPECT_EQ(plan.layout.sharding.offload_param.tier.pool, Pool::host);
  EXPECT_THAT(plan.warnings, ElementsAre(AllOf(HasSubstr("offload_param.device = \"cpu\" has no effect"),
                                               HasSubstr("no copy is made"))));
}

TEST(ResolveOffloadParam, files_have_deepspeeds_defaults_and_every_key_counts) {
  const ParameterOffload tier = plan_of_zero(nvme("")).layout.sharding.offload_param;
  EXPECT_EQ(tier.tier.pool, Pool::file);
  EXPECT_EQ(tier.tier.folder, "/fast");
  EXPECT_EQ(tier.buffers, 5);
  EXPECT_EQ(tier.buffer_size, 100'000'000);
  EXPECT_EQ(tier.in_memory, 1'000'000'000);
  const RunPlan plan =
      plan_of_zero(nvme(R"(, "buffer_count": 2, "buffer_size": 3e6, "max_in_cpu": 0, "pin_memory": false)"));
  EXPECT_EQ(plan.layout.sharding.offload_param.buffers, 2);
  EXPECT_EQ(plan.layout.sharding.offload_param.buffer_size, 3'000'000);
  EXPECT_EQ(plan.layout.sharding.offload_param.in_memory, 0);
  EXPECT_THAT(plan.warnings, IsEmpty());
  EXPECT_THAT(test::reason_of(plan, "offload_param.pin_memory"), HasSubstr("no device reads pages of the host"));
  EXPECT_THAT(test::reason_of(plan, "offload_param.buffer_count"), HasSubstr("offload_param.buffer_count"));
}

TEST(ResolveOffloadParam, below_stage_3_it_is_refused_by_name_with_what_to_do) {
  for (const int stage : {0, 1, 2})
    for (const std::string& zero :
         {nvme("", stage), fmt::format(R"({{"stage": {}, "offload_param": {{"device": "cpu"}}}})", stage)})
      EXPECT_THAT(message_of<ConfigError>([&] { plan_of_zero(zero); }),
                  AllOf(HasSubstr("offload_param.device = "), HasSubstr("takes zero_optimization.stage = 3"),
                        HasSubstr(fmt::format("it is {}", stage)), HasSubstr("raise the stage, or leave it out")));
}

TEST(ResolveOffloadParam, what_is_missing_unknown_or_too_small_is_refused_in_one_line) {
  for (const char* zero : {R"({"stage": 3, "offload_param": {"device": "nvme"}})",
                           R"({"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "none"}})"})
    EXPECT_THAT(message_of<ConfigError>([&] { plan_of_zero(zero); }),
                HasSubstr("offload_param.device = \"nvme\" without nvme_path: name a folder"));
  EXPECT_THAT(message_of<ConfigError>([&] { plan_of_zero(R"({"stage": 3, "offload_param": {"device": "disk"}})"); }),
              HasSubstr("expected \"none\", \"cpu\" or \"nvme\""));
  for (const auto& [key, value] : {std::pair("buffer_count", 0), {"buffer_size", 0}, {"max_in_cpu", -1}})
    EXPECT_THAT(message_of<ConfigError>(
                    [&, key = key, value = value] { plan_of_zero(nvme(fmt::format(R"(, "{}": {})", key, value))); }),
                AllOf(HasSubstr(key), HasSubstr("expected at least")));
}

TEST(ResolveOffloadParam, the_section_aio_counts_for_its_files) {
  const RunPlan plan =
      test::plan_of(R"({"deepspeed": {"aio": {"queue_depth": 32}, "zero_optimization": )" + nvme("") + "}}");
  EXPECT_EQ(plan.layout.sharding.offload_param.tier.aio.queue_depth, 32);
  EXPECT_THAT(plan.warnings, IsEmpty());
}

}  // namespace
}  // namespace nought::resolve_offload_param_test
