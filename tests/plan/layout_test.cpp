#include "nought/config/layout.h"

#include <gtest/gtest.h>

#include "nought/plan/predict.h"
#include "nought/zero/sharding_options.h"

namespace nought::layout_test {
namespace {

TEST(Layout, of_a_plan_has_what_the_plan_says_elsewhere_of_validations_and_samples) {
  RunPlan plan;
  plan.layout = {.ranks = 4, .micro_batch = 5, .seq_length = 6, .accumulation = 7};
  plan.layout.evaluation_rows = 9;
  const Layout layout = layout_of(plan);
  EXPECT_EQ(layout.evaluation_rows, 0) << "nothing is validated";
  EXPECT_EQ(layout.tokens_per_step(), 4 * 5 * 6 * 7);
  plan.data.validation_fraction = 0.1;
  EXPECT_EQ(layout_of(plan).evaluation_rows, 9);
  EXPECT_EQ(layout_of(plan).sample_prompt, 0) << "no text is sampled";
  plan.sample = SamplePlan{.prompt = "abc", .max_new_tokens = 10};
  plan.data.tokenizer = "bytes";
  EXPECT_EQ(layout_of(plan).sample_prompt, 3);
  EXPECT_EQ(layout_of(plan).sample_new_tokens, 10);
}

TEST(Layout, shards_what_its_stage_says) {
  Layout layout{.zero_stage = 2, .sharding = {.gather_bucket = 8}};
  EXPECT_TRUE(layout.sharding_options().policy.shard_gradients);
  EXPECT_FALSE(layout.sharding_options().policy.shard_parameters);
  EXPECT_EQ(layout.sharding_options().gather_bucket, 8);
  EXPECT_FALSE(layout.sharding_options().local_gradients);
  layout.staleness = 1;
  EXPECT_TRUE(layout.sharding_options().local_gradients) << "servers add the gradients";
}

}  // namespace
}  // namespace nought::layout_test
