// compression_training.weight_quantization of ds_config.json, as it is written, and what is refused.
#include "support/resolved.h"
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::resolve_weight_quantization_test {
namespace {

using testing::HasSubstr;

std::string run_with(const std::string& shared, const std::string& groups) {
  return fmt::format(R"({{"training": {{"output_dir": "out"}}, "deepspeed": {{"compression_training":
    {{"weight_quantization": {{"shared_parameters": {{"enabled": true{}}}, "different_groups": {}}}}}}}}})",
                     shared, groups);
}

const std::string kGroups = R"({"wq1": {"params": {"start_bits": 12, "target_bits": 4, "quantization_period": 50},
  "modules": ["q_proj", "mlp"]}, "wq2": {"params": {"start_bits": 2, "target_bits": 2}, "modules": ["embed"],
  "related_modules": null}})";

TEST(ResolveWeightQuantization, takes_the_section_as_deepspeed_has_it) {
  const RunPlan plan = test::plan_of(
      run_with(R"(, "quantizer_kernel": false, "schedule_offset": 7, "quantize_groups": 64, "quantize_verbose": true,
                  "quantization_type": "asymmetric", "rounding": "stochastic", "quantize_weight_in_forward": false,
                  "fp16_mixed_quantize": {"enabled": true, "quantize_change_ratio": 0.01})",
               kGroups));
  ASSERT_TRUE(plan.layout.sharding.weight_quantization);
  const WeightQuantization& quantization = *plan.layout.sharding.weight_quantization;
  EXPECT_EQ(quantization.schedule_offset, 7);
  EXPECT_EQ(quantization.quantize_groups, 64);
  EXPECT_EQ(quantization.scale, QuantizerScale::asymmetric);
  EXPECT_TRUE(quantization.stochastic);
  EXPECT_FALSE(quantization.in_forward);
  EXPECT_EQ(quantization.mixed_change, 0.01);
  ASSERT_EQ(quantization.groups.size(), 2u);
  const WeightGroup first{
      .name = "wq1", .modules = {"q_proj", "mlp"}, .bits = {.start_bits = 12, .target_bits = 4, .period = 50}};
  EXPECT_EQ(quantization.groups[0], first);
  EXPECT_EQ(quantization.groups[1].bits.period, 1);
  EXPECT_THAT(test::value_of(plan, "weight_quantization.wq1"), HasSubstr("q_proj, mlp: 12 to 4 bits, asymmetric"));
  EXPECT_THAT(test::value_of(plan, "weight_quantization.wq2"), HasSubstr("ternary"));
}

TEST(ResolveWeightQuantization, is_off_unless_it_is_enabled) {
  EXPECT_FALSE(test::plan_of(R"({"training": {"output_dir": "out"}, "deepspeed": {"compression_training":
    {"weight_quantization": {"shared_parameters": {"enabled": false, "schedule_offset": 3}, "different_groups": {}}}}})")
                   .layout.sharding.weight_quantization);
}

TEST(ResolveWeightQuantization, refuses_what_cannot_be) {
  const auto error = [](const std::string& shared, const std::string& groups = kGroups) {
    return test::error_of(run_with(shared, groups));
  };
  const auto group = [&](const std::string& params, const std::string& more = R"("modules": ["q"])") {
    return error("", fmt::format(R"({{"g": {{"params": {}, {}}}}})", params, more));
  };
  EXPECT_THAT(group(R"({"start_bits": 4, "target_bits": 8})"),
              HasSubstr("different_groups.g.params.start_bits = 4 is below target_bits = 8"));
  EXPECT_THAT(group(R"({"target_bits": 8})"), HasSubstr("params.start_bits is missing"));
  EXPECT_THAT(group(R"({"start_bits": 32, "target_bits": 8})"), HasSubstr("start_bits = 32: expected 1 to 16 bits"));
  EXPECT_THAT(group(R"({"start_bits": 8, "target_bits": 8, "quantization_period": 0})"),
              HasSubstr("quantization_period = 0: expected at least 1"));
  EXPECT_THAT(group(R"({"start_bits": 8, "target_bits": 8})", R"("modules": [])"), HasSubstr("modules is missing"));
  EXPECT_THAT(group(R"({"start_bits": 8, "target_bits": 8})", R"("modules": ["q"], "related_modules": [["k"]])"),
              HasSubstr("pruning alone has related modules"));
  EXPECT_THAT(group(R"({"start_bits": 8, "target_bit": 8})"), HasSubstr("did you mean \"target_bits\""));
  EXPECT_THAT(error("", "{}"), HasSubstr("different_groups: expected a group of layers by name"));
  EXPECT_THAT(error(R"(, "quantization_type": "symetric")"), HasSubstr("expected \"symmetric\" or \"asymmetric\""));
  EXPECT_THAT(error(R"(, "rounding": "up")"), HasSubstr("expected \"nearest\" or \"stochastic\""));
  EXPECT_THAT(error(R"(, "quantize_groups": 0)"), HasSubstr("quantize_groups: expected at least 1"));
  EXPECT_THAT(error(R"(, "quantize_weight_in_forward": true, "fp16_mixed_quantize": {"enabled": true})"),
              HasSubstr("does not go with quantize_weight_in_forward"));
  EXPECT_THAT(error(R"(, "fp16_mixed_quantize": {"enabled": true, "quantize_change_ratio": 0})"),
              HasSubstr("quantize_change_ratio = 0: expected a number above 0"));
}

}  // namespace
}  // namespace nought::resolve_weight_quantization_test
