// The sections adapter and quantization_config of a RUN.json.
#include <algorithm>
#include <map>

#include "support/resolved.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::resolve_adapter_test {
namespace {

using test::error_of;
using test::plan_of;
using testing::HasSubstr;

std::string run_with(const std::string& rest) { return R"({"model": "base", "data": {"files": ["x"]}, )" + rest + "}"; }

TEST(ResolveAdapter, the_section_has_pefts_keys_by_either_name) {
  for (const char* key : {"adapter", "peft_config"}) {
    const RunPlan plan = plan_of(run_with(fmt::format(R"("{}": {{"r": 4, "lora_alpha": 16}})", key)));
    ASSERT_TRUE(plan.adapter.has_value());
    EXPECT_EQ(plan.adapter->r, 4);
    EXPECT_TRUE(plan.adapts());
    EXPECT_EQ(test::value_of(plan, "adapter"), "lora, r 4, alpha 16");
  }
  EXPECT_FALSE(plan_of(run_with(R"("training": {})")).adapts());
  EXPECT_THAT(error_of(run_with(R"("adapter": {}, "peft_config": {})")), HasSubstr("are the same key"));
}

TEST(ResolveAdapter, a_path_is_an_adapter_to_go_on_from) {
  const RunPlan plan = plan_of(run_with(R"("adapter": "out/first")"));
  EXPECT_EQ(plan.adapter_dir, "out/first");
  EXPECT_TRUE(plan.adapts());
}

TEST(ResolveAdapter, overrides_reach_its_keys) {
  const RunPlan plan = plan_of(run_with(R"("adapter": {"r": 4})"), 1, {"adapter.r=2", "adapter.use_rslora=true"});
  EXPECT_EQ(plan.adapter->r, 2);
  EXPECT_TRUE(plan.adapter->rslora);
}

TEST(ResolveAdapter, the_rate_of_b_may_be_higher) {
  const RunPlan plan = plan_of(run_with(R"("adapter": {"loraplus_lr_ratio": 16})"));
  ASSERT_EQ(plan.layout.sharding.optimizer.groups.size(), 1u);
  EXPECT_EQ(plan.layout.sharding.optimizer.groups[0].lr_scale, 16);
  EXPECT_THAT(error_of(run_with(R"("adapter": {"loraplus_lr_ratio": 0})")), HasSubstr("expected a finite number > 0"));
}

TEST(ResolveAdapter, what_does_not_go_with_it_is_named) {
  EXPECT_THAT(error_of(run_with(R"("adapter": {}, "training": {"freeze": ["x"]})")),
              HasSubstr("training.freeze does not go with RUN.json: adapter"));
  EXPECT_THAT(error_of(run_with(R"("adapter": {}, "training": {"resize_vocab": true})")),
              HasSubstr("training.resize_vocab does not go with"));
  EXPECT_THAT(error_of(run_with(R"("adapter": {"base_model_name_or_path": "other"})")),
              HasSubstr("is \"other\", and \"model\" is \"base\""));
  EXPECT_THAT(error_of(run_with(R"("adapter": {"r": 0})")), HasSubstr("RUN.json: adapter.r: a rank is at least 1"));
  EXPECT_THAT(error_of(run_with(R"("adapter": {"rank": 8})")), HasSubstr("adapter.rank: unknown key of an adapter"));
}

TEST(ResolveAdapter, an_adapter_needs_the_weights_of_a_model) {
  const RunPlan plan =
      plan_of(R"({"model": {"model_type": "llama"}, "data": {"files": ["x"], "seq_length": 8}, "adapter": {}})");
  EXPECT_THAT(test::error_of("{}"), HasSubstr("no error"));
  EXPECT_THROW(require_trainable(plan), ConfigError);
}

TEST(ResolveQuantization, keeps_the_frozen_model_of_an_adapter_in_codes) {
  const auto plan_with = [](const std::string& section) {
    return plan_of(run_with(R"("adapter": {}, "quantization_config": )" + section));
  };
  const RunPlan nf4 = plan_with(
      R"({"load_in_4bit": true, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": true,
          "bnb_4bit_compute_dtype": "float32"})");
  EXPECT_EQ(nf4.layout.freezing.codes, (WeightCodes{CodeKind::nf4, true}));
  EXPECT_EQ(test::value_of(nf4, "quantization_config"), "nf4, double quantization");
  EXPECT_EQ(plan_with(R"({"load_in_4bit": true})").layout.freezing.codes, (WeightCodes{CodeKind::fp4, false}))
      << "transformers' defaults";
  EXPECT_EQ(plan_with(R"({"load_in_8bit": true})").layout.freezing.codes, WeightCodes{});
  EXPECT_EQ(plan_with(R"({"load_in_4bit": false})").layout.freezing.codes, std::nullopt);
}

TEST(ResolveQuantization, what_codes_do_not_go_with_is_refused_by_name) {
  const auto refusal = [](const std::string& adapter, const std::string& section) {
    return error_of(
        run_with((adapter.empty() ? "" : R"("adapter": )" + adapter + ", ") + R"("quantization_config": )" + section));
  };
  EXPECT_THAT(refusal("", R"({"load_in_4bit": true})"),
              HasSubstr("RUN.json: quantization_config.load_in_4bit: codes are not trained"));
  EXPECT_THAT(refusal("{}", R"({"load_in_4bit": true, "load_in_8bit": true})"), HasSubstr("are both true: choose one"));
  EXPECT_THAT(refusal("{}", R"({"load_in_4bit": true, "bnb_4bit_quant_type": "nf5"})"),
              HasSubstr("expected one of nf4, fp4, found the string \"nf5\""));
  EXPECT_THAT(refusal("{}", R"({"load_in_4bit": true, "bnb_4bit_compute_dtype": "bfloat16"})"),
              HasSubstr("bnb_4bit_compute_dtype: products of codes run in the dtype of the run, f32"));
  EXPECT_THAT(refusal("{}", R"({"load_in_4bit": true, "bnb_4bit_compute_dtype": "int8"})"),
              HasSubstr("expected float32, bfloat16 or float16, found \"int8\""));
  EXPECT_THAT(refusal("{}", R"({"quant_method": "gptq", "load_in_4bit": true})"), HasSubstr("\"gptq\" is no way"));
  EXPECT_THAT(refusal(R"({"use_dora": true})", R"({"load_in_4bit": true})"), HasSubstr("adapter.use_dora yet"));
  EXPECT_THAT(refusal(R"({"init_lora_weights": "pissa"})", R"({"load_in_4bit": true})"),
              HasSubstr("adapter.init_lora_weights"));
}

TEST(ResolveQuantization, paged_optimizers_are_those_without_pages) {
  for (const auto& [name, is] : std::map<std::string, std::string>{{"paged_adamw_32bit", "adamw_torch"},
                                                                   {"paged_adamw_8bit", "adamw_8bit"},
                                                                   {"paged_lion_32bit", "lion_32bit"},
                                                                   {"paged_lion_8bit", "lion_8bit"}}) {
    const auto with = [](const std::string& optim) {
      return plan_of(run_with(R"("training": {"optim": ")" + optim + "\"}"));
    };
    const RunPlan paged = with(name), plain = with(is);
    EXPECT_EQ(paged.layout.sharding.optimizer.method.index(), plain.layout.sharding.optimizer.method.index());
    const auto has_blocks = [](const RunPlan& plan) {
      return std::any_of(plan.resolved.begin(), plan.resolved.end(),
                         [](const Resolved& each) { return each.key == "block_size"; });
    };
    EXPECT_EQ(has_blocks(paged), has_blocks(plain)) << "8 bits";
    EXPECT_THAT(paged.resolved,
                testing::Contains(testing::Field(&Resolved::reason, HasSubstr("it is " + is + " here"))));
  }
}

}  // namespace
}  // namespace nought::resolve_adapter_test
