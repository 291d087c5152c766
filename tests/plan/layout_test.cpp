#include <gtest/gtest.h>

#include "nought/plan/predict.h"

namespace nought::layout_test {
namespace {

TEST(Layout, takes_every_number_of_the_plan) {
  RunPlan plan;
  plan.world_size = 4, plan.zero_stage = 3, plan.micro_batch = 5, plan.data.seq_length = 6, plan.accumulation = 7;
  plan.recompute = Recompute::full;
  plan.fp8.scaling = Fp8Scaling::delayed;
  plan.gather_bucket = 8;
  plan.eval_micro_batch = 9;
  Layout layout = layout_of(plan);
  EXPECT_EQ(layout.ranks, 4);
  EXPECT_EQ(layout.zero_stage, 3);
  EXPECT_EQ(layout.micro_batch, 5);
  EXPECT_EQ(layout.seq_length, 6);
  EXPECT_EQ(layout.accumulation, 7);
  EXPECT_EQ(layout.recompute.mode, Recompute::full);
  EXPECT_EQ(layout.fp8.scaling, Fp8Scaling::delayed);
  EXPECT_EQ(layout.sharding.gather_bucket, 8);
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

}  // namespace
}  // namespace nought::layout_test
