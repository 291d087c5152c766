// training.qat, and compression_training.activation_quantization and sparse_pruning as they are written, and what is
// refused.
#include "support/resolved.h"
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::resolve_smaller_test {
namespace {

using testing::HasSubstr;

std::string run_of(const std::string& training, const std::string& compression = "{}") {
  return fmt::format(
      R"({{"training": {{"output_dir": "out", "bf16": false{}}}, "deepspeed": {{"compression_training": {}}}}})",
      training, compression);
}

TEST(ResolveQat, takes_torchaos_recipes_by_their_short_names) {
  const RunPlan plan = test::plan_of(run_of(R"(, "qat": "int8-int4", "qat_group_size": 64, "qat_start_step": 100)"));
  ASSERT_TRUE(plan.layout.sharding.qat);
  EXPECT_EQ(plan.layout.sharding.qat->mode, QatMode::int8_int4);
  EXPECT_EQ(plan.layout.sharding.qat->group_size, 64);
  EXPECT_EQ(plan.layout.sharding.qat->start_step, 100);
  ASSERT_TRUE(plan.layout.fp8.inputs);
  EXPECT_EQ(plan.layout.fp8.inputs->grid, RowGrid::affine);
  EXPECT_EQ(plan.layout.fp8.inputs->start, 100);
  EXPECT_EQ(test::value_of(plan, "qat"),
            "int8-int4: weights in 4 bits, groups of 64, inputs in 8 bits, a scale a token, from step 101 on");
  for (const auto& [mode, name] : kQatModes) {
    const RunPlan each = test::plan_of(run_of(fmt::format(R"(, "qat": "{}")", name)));
    EXPECT_EQ(each.layout.sharding.qat->mode, mode);
    EXPECT_EQ(each.layout.sharding.qat->group_size, 32);
    EXPECT_EQ(each.layout.fp8.inputs.has_value(),
              mode == QatMode::int8_int4 || mode == QatMode::fp8 || mode == QatMode::fp8_int4);
  }
  EXPECT_FALSE(test::plan_of(run_of(R"(, "qat": "none")")).layout.sharding.qat);
}

TEST(ResolveQat, refuses_what_there_is_not) {
  const auto error = [](const std::string& training, const std::string& compression = "{}") {
    return test::error_of(run_of(training, compression));
  };
  EXPECT_THAT(error(R"(, "qat": "nvfp4")"),
              HasSubstr("training.qat = \"nvfp4\" is not available; there are int4, int8, int8-int4, fp8, fp8-int4, "
                        "mxfp4, and none"));
  EXPECT_THAT(error(R"(, "qat": "2:4")"), HasSubstr("\"2:4\" is not available"));
  EXPECT_THAT(error(R"(, "qat": "int3")"), HasSubstr("\"int3\" is no format of training; there are int4"));
  EXPECT_THAT(error(R"(, "qat": "int8", "qat_group_size": 32)"), HasSubstr("has no choice of groups: leave it out"));
  EXPECT_THAT(error(R"(, "qat": "int4", "qat_group_size": 1)"), HasSubstr("qat_group_size: expected at least 2"));
  EXPECT_THAT(error(R"(, "qat": "int4", "qat_start_step": -1)"), HasSubstr("qat_start_step: expected at least 0"));
  EXPECT_THAT(error(R"(, "qat": "fp8", "memory_centric_tiling": 4)"),
              HasSubstr("does not go with training.memory_centric_tiling"));
  EXPECT_THAT(error(R"(, "qat": "int4")", R"({"weight_quantization": {"shared_parameters": {"enabled": true},
      "different_groups": {"a": {"params": {"start_bits": 8, "target_bits": 8}, "modules": ["q"]}}}})"),
              HasSubstr("does not go with compression_training.weight_quantization"));
}

std::string inputs_with(const std::string& shared, const std::string& groups) {
  return fmt::format(
      R"({{"activation_quantization": {{"shared_parameters": {{"enabled": true{}}}, "different_groups": {}}}}})",
      shared, groups);
}

TEST(ResolveActivationQuantization, takes_the_section_as_deepspeed_has_it) {
  const std::string groups = R"({"aq1": {"params": {"bits": 8}, "modules": ["q_proj", "k_proj", "v_proj"]},
                                 "aq2": {"params": {"bits": 4}, "modules": ["mlp"], "related_modules": null}})";
  const RunPlan plan =
      test::plan_of(run_of("", inputs_with(R"(, "quantization_type": "asymmetric", "range_calibration": "dynamic",
                                "schedule_offset": 50)",
                                           groups)));
  ASSERT_TRUE(plan.layout.fp8.inputs);
  const InputRounding expected{.grid = RowGrid::asymmetric,
                               .start = 50,
                               .section = "compression_training.activation_quantization.different_groups",
                               .groups = {{"aq1", {"q_proj", "k_proj", "v_proj"}, 8}, {"aq2", {"mlp"}, 4}}};
  EXPECT_EQ(*plan.layout.fp8.inputs, expected);
  EXPECT_EQ(test::value_of(plan, "activation_quantization.aq2"),
            "mlp: inputs in 4 bits, asymmetric, a scale a token, from step 51 on");
  EXPECT_EQ(test::plan_of(run_of("", inputs_with("", groups))).layout.fp8.inputs->start, 1000);
}

TEST(ResolveActivationQuantization, refuses_what_cannot_be) {
  const auto error = [](const std::string& shared, const std::string& groups, const std::string& training = "") {
    return test::error_of(run_of(training, inputs_with(shared, groups)));
  };
  const std::string group = R"({"a": {"params": {"bits": 8}, "modules": ["q"]}})";
  EXPECT_THAT(error("", R"({"a": {"params": {"bits": 5}, "modules": ["q"]}})"),
              HasSubstr("different_groups.a.params.bits = 5: expected 4 or 8"));
  EXPECT_THAT(error("", R"({"a": {"params": {"bits": 8}}})"), HasSubstr("a.modules is missing"));
  EXPECT_THAT(error("", "{}"), HasSubstr("different_groups: expected a group of layers by name"));
  EXPECT_THAT(error(R"(, "range_calibration": "static")", group),
              HasSubstr("range_calibration = \"static\": \"dynamic\", a range for each token, is what there is"));
  EXPECT_THAT(error(R"(, "quantization_type": "ternary")", group), HasSubstr("expected \"symmetric\" or"));
  EXPECT_THAT(error("", group, R"(, "qat": "fp8")"), HasSubstr("does not go with what rounds inputs already"));
}

std::string pruned_with(const std::string& shared, const std::string& groups) {
  return fmt::format(R"({{"sparse_pruning": {{"shared_parameters": {{"enabled": true{}}}, "different_groups": {}}}}})",
                     shared, groups);
}

TEST(ResolveSparsePruning, takes_l1_as_deepspeed_has_it) {
  const RunPlan plan =
      test::plan_of(run_of("", pruned_with(R"(, "method": "l1", "schedule_offset": 30)",
                                           R"({"sp1": {"params": {"dense_ratio": 0.4}, "modules": ["mlp"]}})")));
  ASSERT_TRUE(plan.layout.sharding.sparse_pruning);
  EXPECT_EQ(plan.layout.sharding.sparse_pruning->schedule_offset, 30);
  const PrunedGroup expected{"sp1", {"mlp"}, 0.4};
  EXPECT_EQ(plan.layout.sharding.sparse_pruning->groups, std::vector{expected});
  EXPECT_EQ(test::value_of(plan, "sparse_pruning.sp1"), "mlp: the 40% largest weights, from step 31 on");
}

TEST(ResolveSparsePruning, refuses_what_cannot_be) {
  const std::string group = R"({"a": {"params": {"dense_ratio": 0.5}, "modules": ["q"]}})";
  const auto error = [](const std::string& shared, const std::string& groups) {
    return test::error_of(run_of("", pruned_with(shared, groups)));
  };
  EXPECT_THAT(error(R"(, "method": "topk")", group), HasSubstr("method = \"topk\": \"l1\", by magnitude, is what"));
  EXPECT_THAT(error(R"(, "block_pattern": "2:4")", group), HasSubstr("block_pattern is of the method snip_momentum"));
  for (const char* ratio : {"0", "1.5", "-1"})
    EXPECT_THAT(error("", fmt::format(R"({{"a": {{"params": {{"dense_ratio": {}}}, "modules": ["q"]}}}})", ratio)),
                HasSubstr("a.params.dense_ratio: expected the part of the weights that stays"));
  EXPECT_THAT(error("", R"({"a": {"params": {"dense_ratio": 0.5}, "modules": ["q"], "related_modules": [["k"]]}})"),
              HasSubstr("pruning of rows and heads alone has related modules"));
}

}  // namespace
}  // namespace nought::resolve_smaller_test
