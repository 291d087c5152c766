// What the keys of ZeRO++ come to, and what is refused.
#include "support/environment.h"
#include "support/resolved.h"
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::resolve_zeropp_test {
namespace {

using test::error_of;
using test::plan_of;
using test::reason_of;
using test::value_of;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string with(const std::string& zero, const std::string& training = "") {
  return fmt::format(R"({{"training": {{{}}}, "deepspeed": {{"zero_optimization": {{{}}}}}}})", training, zero);
}
const std::string kAll = R"("stage": 3, "zero_quantized_weights": true, "zero_hpz_partition_size": 2,
                            "zero_quantized_gradients": true)";

TEST(ResolveZeroPlusPlus, all_parts_know_the_hosts_and_say_which_way_things_go) {
  const test::Environment two{{"LOCAL_WORLD_SIZE", "2"}};
  const RunPlan plan = plan_of(with(kAll), 8);
  EXPECT_EQ(plan.layout.sharding.codes.weight_bits, 8);
  EXPECT_EQ(plan.layout.sharding.codes.gradient_bits, 4);
  EXPECT_FALSE(plan.layout.sharding.codes.feedback);
  EXPECT_EQ(plan.layout.host_ranks, 2);
  EXPECT_EQ(plan.layout.secondary, 2);
  EXPECT_EQ(plan.layout.shard_ranks(), 8);
  EXPECT_THAT(plan.warnings, IsEmpty());
  EXPECT_THAT(reason_of(plan, "zero_quantized_weights"), HasSubstr("between 4 hosts, then among the 2 ranks of each"));
  EXPECT_THAT(reason_of(plan, "zero_quantized_gradients"), HasSubstr("among the 2 ranks of each host, then between 4"));
  EXPECT_THAT(reason_of(plan, "zero_hpz_partition_size"), HasSubstr("on one host"));
}

TEST(ResolveZeroPlusPlus, on_one_host_there_is_one_hop) {
  const test::Environment eight{{"LOCAL_WORLD_SIZE", "8"}};
  const RunPlan plan = plan_of(with(kAll), 8);
  EXPECT_EQ(value_of(plan, "zero_quantized_gradients"), "4 bits");
  EXPECT_THAT(reason_of(plan, "zero_quantized_gradients"), HasSubstr("one hop between all 8 ranks"));
  EXPECT_THAT(reason_of(plan, "zero_quantized_weights"), HasSubstr("from all ranks at once"));
}

TEST(ResolveZeroPlusPlus, what_is_off_changes_nothing) {
  const RunPlan plan = plan_of(with(R"("stage": 2, "zero_quantized_weights": false, "zero_hpz_partition_size": 1,
      "zero_quantized_gradients": false, "zero_quantized_nontrainable_weights": false)"),
                               8);
  EXPECT_TRUE(plan.layout.sharding.codes.plain());
  EXPECT_EQ(plan.layout.host_ranks, 0);
  EXPECT_THAT(plan.warnings, IsEmpty());
}

TEST(ResolveZeroPlusPlus, below_stage_3_every_key_is_refused_by_name) {
  for (const char* key : {"zero_quantized_weights", "zero_quantized_gradients", "zero_quantized_nontrainable_weights"})
    EXPECT_THAT(error_of(with(fmt::format(R"("stage": 2, "{}": true)", key)), 8),
                AllOf(HasSubstr(std::string(key) + " = true takes zero_optimization.stage = 3"), HasSubstr("it is 2")));
  EXPECT_THAT(error_of(with(R"("stage": 1, "zero_hpz_partition_size": 2)"), 8),
              HasSubstr("zero_hpz_partition_size = 2 takes zero_optimization.stage = 3"));
}

TEST(ResolveZeroPlusPlus, sizes_of_second_copies_divide_the_ranks) {
  const auto size = [](int size) { return with(fmt::format(R"("stage": 3, "zero_hpz_partition_size": {})", size)); };
  EXPECT_THAT(error_of(size(3), 8), HasSubstr("cannot be divided by it; the nearest size that can is 2"));
  EXPECT_THAT(error_of(size(0), 8), HasSubstr("expected at least 1, got 0"));
  EXPECT_THAT(plan_of(size(8), 8).warnings, ElementsAre(HasSubstr("zero_hpz_partition_size = 8 has no effect")));
  const test::Environment two{{"LOCAL_WORLD_SIZE", "2"}};
  EXPECT_THAT(reason_of(plan_of(size(4), 8), "zero_hpz_partition_size"), HasSubstr("on several hosts"));
  EXPECT_THAT(error_of(with(R"("stage": 3, "zero_hpz_partition_size": 2,
                               "offload_param": {"device": "nvme", "nvme_path": "/fast"})"),
                       8),
              HasSubstr("it keeps in memory what zero_optimization.offload_param keeps in files"));
}

TEST(ResolveZeroPlusPlus, feedback_has_deepspeeds_defaults_and_takes_coded_gradients) {
  const RunPlan plan = plan_of(with(kAll + R"(, "zeropp_loco_param": {"err_beta": 0.5})"), 8);
  EXPECT_EQ(plan.layout.sharding.codes.feedback->beta, 0.5);
  EXPECT_EQ(plan.layout.sharding.codes.feedback->reset, 1024);
  EXPECT_EQ(value_of(plan, "zeropp_loco_param.err_beta"), "0.5");
  EXPECT_THAT(
      plan_of(with(R"("stage": 3, "zeropp_loco_param": {"reset_T": 9})"), 8).warnings,
      ElementsAre(HasSubstr("zeropp_loco_param has no effect without zero_optimization.zero_quantized_gradients")));
  EXPECT_THAT(error_of(with(kAll + R"(, "zeropp_loco_param": {"err_beta": 1})"), 8), HasSubstr("[0, 1)"));
  EXPECT_THAT(error_of(with(kAll + R"(, "zeropp_loco_param": {"reset_T": 0})"), 8), HasSubstr("at least 1"));
}

TEST(ResolveZeroPlusPlus, gradients_take_4_8_16_or_32_bits) {
  EXPECT_EQ(plan_of(with(kAll, R"("quantized_gradient_bits": 16)"), 8).layout.sharding.codes.gradient_bits, 16);
  EXPECT_THAT(error_of(with(kAll, R"("quantized_gradient_bits": 5)"), 8), HasSubstr("expected 4 or 8"));
  EXPECT_THAT(plan_of(with(R"("stage": 3)", R"("quantized_gradient_bits": 8)"), 8).warnings,
              ElementsAre(HasSubstr("quantized_gradient_bits has no effect without")));
}

TEST(ResolveZeroPlusPlus, what_can_do_nothing_is_a_warning) {
  EXPECT_THAT(
      plan_of(with(R"("stage": 3, "zero_quantized_weights": true, "zero_quantized_gradients": true)"), 1).warnings,
      ElementsAre(HasSubstr("zero_quantized_weights has no effect: one rank"),
                  HasSubstr("zero_quantized_gradients has no effect: one rank")));
  EXPECT_THAT(plan_of(with(R"("stage": 3, "zero_quantized_nontrainable_weights": true)"), 2).warnings,
              ElementsAre(HasSubstr("nothing is frozen")));
  EXPECT_THAT(plan_of(with(R"("stage": 3)", R"("moe_quantized_dispatch": true)"), 2).warnings,
              ElementsAre(HasSubstr("ep_size is 1")));
}

TEST(ResolveZeroPlusPlus, frozen_weights_and_rows_of_tokens_are_coded_if_asked) {
  const RunPlan plan =
      plan_of(with(R"("stage": 3, "zero_quantized_nontrainable_weights": true)",
                   R"("freeze": ["embed"], "moe_quantized_dispatch": true, "parallelism_config": {"ep_size": 2})"),
              2);
  EXPECT_TRUE(plan.layout.freezing.codes);
  EXPECT_TRUE(plan.moe_quantized_dispatch);
  EXPECT_EQ(value_of(plan, "zero_quantized_nontrainable_weights"), "true");
}

}  // namespace
}  // namespace nought::resolve_zeropp_test
