// A run with every value that model and data decide: what check shows is what train begins with.
#include "nought/plan/ready_run.h"

#include "support/golden.h"
#include "support/resolved.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/train/trainer.h"

namespace nought {
namespace ready_run_test {
namespace {

using test::TempFolder;

TEST(ReadyRun, has_the_values_that_wait_for_model_and_data) {
  const TempFolder folder;
  const std::string text = fmt::format(
      R"({{"model": "{}", "data": {{"files": ["{}"], "tokenizer": "bytes", "seq_length": 16}},
           "training": {{"num_train_epochs": 3, "per_device_train_batch_size": 4, "warmup_ratio": 0.25,
                         "lr_scheduler_type": "cosine", "output_dir": "{}"}},
           "deepspeed": {{"zero_optimization": {{"stage": 2, "reduce_bucket_size": "auto"}}}}}})",
      test::golden_folder("open/llama"), folder.write("a.txt", std::string(16 * 40 + 1, 'x')).string(),
      (folder / "out").string());
  const RunPlan before = test::plan_of(text);
  EXPECT_EQ(test::value_of(before, "max_steps"), "?");
  EXPECT_EQ(test::value_of(before, "reduce_bucket_size"), "hidden_size^2");
  const RunPlan plan = ready_run(before, StartMode::fresh, kDryRun).plan;
  EXPECT_EQ(plan.max_steps, 30);
  EXPECT_EQ(plan.schedule.warmup_steps, 8);
  EXPECT_EQ(plan.schedule.total_steps, 30);
  EXPECT_EQ(plan.layout.sharding.reduce_bucket, 48 * 48);
  EXPECT_EQ(test::value_of(plan, "max_steps"), "30");
  EXPECT_EQ(test::value_of(plan, "schedule.warmup_steps"), "8");
  EXPECT_EQ(test::value_of(plan, "schedule.total_steps"), "30");
  EXPECT_EQ(test::value_of(plan, "reduce_bucket_size"), "2304");
}

TEST(ReadyRun, tells_the_length_of_a_run_whose_text_was_read_in_part) {
  const TempFolder folder;
  constexpr int64_t kSequence = 16, kSamples = 20'000;
  const std::string text = fmt::format(
      R"({{"model": "{}", "data": {{"files": ["{}"], "tokenizer": "bytes", "seq_length": {}}},
           "training": {{"num_train_epochs": 3, "per_device_train_batch_size": 4, "warmup_ratio": 0.25,
                         "lr_scheduler_type": "cosine", "output_dir": "{}"}}}})",
      test::golden_folder("open/llama"), folder.write("a.txt", std::string(kSequence * kSamples + 1, 'x')).string(),
      kSequence, (folder / "out").string());
  const RunPlan plan =
      ready_run(test::plan_of(text), StartMode::fresh, {.text_bytes = 1 << 16, .makes_folders = false}).plan;
  EXPECT_EQ(plan.max_steps, 0) << "train alone knows it";
  EXPECT_EQ(test::value_of(plan, "max_steps"), "about 15000");
  EXPECT_EQ(test::value_of(plan, "schedule.total_steps"), "about 15000");
  EXPECT_EQ(test::value_of(plan, "schedule.warmup_steps"), "about 3750");
}

}  // namespace
}  // namespace ready_run_test
}  // namespace nought
