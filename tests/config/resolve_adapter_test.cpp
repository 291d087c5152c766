// The section adapter of a RUN.json.
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

}  // namespace
}  // namespace nought::resolve_adapter_test
