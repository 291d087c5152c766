#include "support/resolved.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/kernels/isa.h"

namespace nought::resolve_precision_test {
namespace {

using test::error_of;
using test::plan_of;
using test::reason_of;
using test::value_of;
using testing::Contains;
using testing::HasSubstr;

TEST(Resolve, fp16_has_deepspeeds_loss_scale_and_excludes_bf16) {
  const RunPlan plan = plan_of(R"({"training": {"fp16": true}, "deepspeed": {"fp16": {"enabled": "auto"}}})");
  EXPECT_EQ(plan.layout.sharding.dtype, DType::f16);
  EXPECT_EQ(plan.loss_scale, LossScaleOptions());
  const RunPlan other = plan_of(
      R"({"deepspeed": {"fp16": {"enabled": true, "loss_scale": 0, "initial_scale_power": 8, "loss_scale_window": 50,
          "hysteresis": 1, "consecutive_hysteresis": true, "min_loss_scale": 0.5}}})");
  EXPECT_EQ(
      other.loss_scale,
      (LossScaleOptions{
          .initial_power = 8, .scale_window = 50, .hysteresis = 1, .consecutive_hysteresis = true, .min_scale = 0.5}));
  EXPECT_EQ(plan_of(R"({"deepspeed": {"fp16": {"enabled": true, "loss_scale": 128}}})").loss_scale->static_scale, 128);
  EXPECT_EQ(plan_of(R"({"deepspeed": {"fp16": {"enabled": false, "loss_scale": 128}}})").loss_scale, std::nullopt);
  EXPECT_THAT(error_of(R"({"deepspeed": {"fp16": {"enabled": true, "loss_scale_window": 0}}})"),
              HasSubstr("fp16.loss_scale_window: expected at least 1, got 0"));
  EXPECT_THAT(error_of(R"({"training": {"fp16": true, "bf16": true}})"), HasSubstr("are both true"));
}

TEST(Resolve, automatic_bf16_follows_the_cpu_and_says_so) {
  const auto plan = [](std::string_view text, bool has_units) {
    return resolve(make_run_config(parse_json(text, "RUN.json"), "RUN.json"), 1,
                   {has_units, has_units ? "this CPU has some" : "this CPU has none"});
  };
  const char* automatic = R"({"training": {"bf16": "auto"}})";
  EXPECT_EQ(plan(automatic, true).layout.sharding.dtype, DType::bf16);
  EXPECT_EQ(plan(automatic, false).layout.sharding.dtype, DType::f32);
  EXPECT_EQ(reason_of(plan(automatic, false), "dtype"), "training.bf16: auto <- this CPU has none");
  const char* both = R"({"training": {"bf16": "auto"}, "deepspeed": {"bf16": {"enabled": "auto"}}})";
  EXPECT_EQ(plan(both, true).layout.sharding.dtype, DType::bf16);
  EXPECT_EQ(plan(both, false).layout.sharding.dtype, DType::f32);
  EXPECT_EQ(reason_of(plan(both, true), "dtype"), "deepspeed: auto <- training.bf16: auto <- this CPU has some");
  // DeepSpeed's word counts where it gives one, fp16 excludes bf16, and what is explicit is no question of the CPU.
  EXPECT_EQ(
      plan(R"({"training": {"bf16": "auto"}, "deepspeed": {"bf16": {"enabled": true}}})", false).layout.sharding.dtype,
      DType::bf16);
  EXPECT_EQ(plan(R"({"training": {"bf16": "auto", "fp16": true}})", true).layout.sharding.dtype, DType::f16);
  EXPECT_EQ(
      plan(R"({"training": {"bf16": "auto"}, "deepspeed": {"fp16": {"enabled": true}}})", true).layout.sharding.dtype,
      DType::f16);
  EXPECT_EQ(plan(R"({"training": {"bf16": true}})", false).layout.sharding.dtype, DType::bf16);
  EXPECT_EQ(plan(R"({"training": {}})", true).layout.sharding.dtype, DType::f32);
  EXPECT_EQ(bf16_of_cpu().value, has_bf16_units());
  EXPECT_THAT(error_of(R"({"training": {"bf16": "maybe"}})"), HasSubstr("true or false or \"auto\""));
}

TEST(Resolve, gradients_have_dtypes_and_divisors_of_their_own) {
  const RunPlan plain = plan_of(R"({"training": {"bf16": true}})", 4);
  EXPECT_EQ(plain.layout.sharding.gradient_dtype, DType::bf16);
  EXPECT_EQ(plain.layout.sharding.wire_dtype, DType::bf16);
  EXPECT_EQ(plain.gradient_factor, 1);
  const RunPlan chosen =
      plan_of(R"({"training": {"bf16": true}, "deepspeed": {"data_types": {"grad_accum_dtype": "fp32"},
      "communication_data_type": "bfloat16", "prescale_gradients": false, "gradient_predivide_factor": 2}})",
              4);
  EXPECT_EQ(chosen.layout.sharding.gradient_dtype, DType::f32);
  EXPECT_EQ(chosen.layout.sharding.wire_dtype, DType::bf16);
  EXPECT_EQ(chosen.gradient_factor, 2);
  EXPECT_EQ(
      plan_of(R"({"deepspeed": {"prescale_gradients": true, "gradient_predivide_factor": 2}})", 4).gradient_factor, 1);
  EXPECT_THAT(error_of(R"({"training": {"bf16": true}, "deepspeed": {"data_types": {"grad_accum_dtype": "fp16"}}})"),
              HasSubstr("gradients accumulate in fp32 or in the dtype of computation, which is bf16"));
  EXPECT_THAT(error_of(R"({"deepspeed": {"communication_data_type": "int8"}})"), HasSubstr("expected one of fp32"));
}

TEST(Resolve, fp32_gradients_of_a_bf16_run_travel_in_fp32_and_the_difference_to_deepspeed_is_said) {
  const auto with = [](const char* more) {
    return fmt::format(
        R"({{"training": {{"bf16": true}}, "deepspeed": {{"data_types": {{"grad_accum_dtype": "fp32"}}{}}}}})", more);
  };
  const RunPlan plan = plan_of(with(""), 2);
  EXPECT_EQ(plan.layout.sharding.wire_dtype, DType::f32);
  EXPECT_THAT(
      plan.warnings,
      testing::ElementsAre("RUN.json: deepspeed.data_types.grad_accum_dtype = \"fp32\": gradients travel in fp32 "
                           "here, where DeepSpeed sends bf16; communication_data_type = \"bf16\" does as it does"));
  EXPECT_TRUE(plan_of(with(""), 1).warnings.empty()) << "nothing travels";
  EXPECT_TRUE(plan_of(with(R"(, "communication_data_type": "bf16")"), 2).warnings.empty());
}

TEST(Resolve, weights_without_masters_are_deepspeeds_keys_and_must_agree_with_the_others) {
  const RunPlan plan = plan_of(R"({"deepspeed": {"bf16": {"enabled": true, "bf16_master_weights_and_grads": true,
                                                          "bf16_optimizer_states": true}}})");
  EXPECT_FALSE(plan.layout.sharding.optimizer.master_weights);
  EXPECT_EQ(plan.layout.sharding.optimizer.state_dtype, DType::bf16);
  EXPECT_TRUE(plan.layout.sharding.optimizer.stochastic_rounding);
  EXPECT_EQ(plan.layout.sharding.optimizer.seed, plan.seed);
  EXPECT_EQ(value_of(plan, "master_weights"), "none: bf16");
  EXPECT_THAT(error_of(R"({"deepspeed": {"bf16": {"enabled": true, "bf16_optimizer_states": true}}})"),
              HasSubstr("bf16_optimizer_states = true needs bf16.bf16_master_weights_and_grads = true"));
  EXPECT_THAT(error_of(R"({"deepspeed": {"bf16": {"enabled": true, "bf16_master_weights_and_grads": true},
                                         "data_types": {"grad_accum_dtype": "fp32"}}})"),
              HasSubstr("contradicts data_types.grad_accum_dtype"));
  const RunPlan unused = plan_of(R"({"deepspeed": {"bf16": {"bf16_master_weights_and_grads": true}}})");
  EXPECT_TRUE(unused.layout.sharding.optimizer.master_weights);
  EXPECT_THAT(unused.warnings, Contains(HasSubstr("bf16_master_weights_and_grads has no effect: the run is in f32")));
}

TEST(Resolve, fp8_needs_bf16) {
  const RunPlan plan = plan_of(R"({"training": {"bf16": true, "fp8": "delayed", "fp8_amax_history": 8}})");
  EXPECT_EQ(plan.layout.fp8.scaling, Fp8Scaling::delayed);
  EXPECT_EQ(plan.layout.fp8.history, 8);
  EXPECT_THAT(error_of(R"({"training": {"fp8": "current"}})"), HasSubstr("write training.bf16 = true"));
  EXPECT_THAT(error_of(R"({"training": {"fp8": "now"}})"), HasSubstr("delayed"));
}

TEST(Resolve, ranks_of_sp_size_send_gradients_in_a_dtype_of_their_own) {
  const auto wire = [](const std::string& training, const std::string& deepspeed) {
    return plan_of(R"({"training": {"bf16": true)" + training + R"(}, "deepspeed": {)" + deepspeed + "}}", 2);
  };
  const std::string spread = R"(, "parallelism_config": {"sp_size": 2})";
  const std::string key = R"("seq_parallel_communication_data_type": "fp32", "communication_data_type": "bf16")";
  EXPECT_EQ(wire(spread, key).layout.sharding.wire_dtype, DType::f32);
  EXPECT_EQ(wire(spread, R"("communication_data_type": "bf16")").layout.sharding.wire_dtype, DType::bf16);
  EXPECT_EQ(wire("", key).layout.sharding.wire_dtype, DType::bf16);
  EXPECT_TRUE(wire("", key).warnings.empty());  // DeepSpeed's default
  EXPECT_THAT(wire("", R"("seq_parallel_communication_data_type": "bf16")").warnings,
              testing::ElementsAre(HasSubstr("seq_parallel_communication_data_type has no effect: sp_size is 1")));
}

}  // namespace
}  // namespace nought::resolve_precision_test
