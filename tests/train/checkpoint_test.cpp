#include "nought/checkpoint/checkpoint.h"

#include <fstream>

#include "support/loaded_states.h"
#include "support/sweep.h"
#include "support/trainer_runs.h"
#include <gtest/gtest.h>

#include "nought/comm/thread.h"
#include "nought/train/trainer.h"
#include "nought/train/validate_run.h"
#include "nought/weights/hf_folder.h"

namespace nought::checkpoint_test {
namespace {

namespace fs = std::filesystem;
using test::TempFolder;

RunPlan plan_for(const TempFolder& folder, int stage, DType dtype) {
  RunPlan plan = test::plan_on_lines(folder, 12);
  plan.layout.zero_stage = stage;
  plan.layout.sharding.dtype = dtype;
  plan.layout.sharding.overlap = true;
  plan.schedule = {.type = ScheduleType::cosine, .peak_lr = 3e-3, .warmup_steps = 2, .total_steps = 12};
  plan.save_steps = 5;
  plan.seed = 9;
  return plan;
}

test::ToldRun run(const RunPlan& plan, StartMode mode, int ranks) {
  return test::run_plan(plan, {.ranks = ranks, .mode = mode});
}

TEST(Checkpoint, a_resumed_run_continues_bit_for_bit_at_any_stage) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    TempFolder folder;
    const test::ToldRun whole = run(plan_for(folder, 2, dtype), StartMode::fresh, 2);
    ASSERT_EQ(whole.steps.size(), 12u);
    for (const int stage : {0, 1, 2, 3}) test::expect_resumes(plan_for(folder, stage, dtype), whole, 10, 2);
  }
}

TEST(Checkpoint, every_optimizer_resumes_bit_for_bit_and_refuses_the_states_of_another) {
  const std::vector<OptimizerOptions> all{{.method = SgdOptions{.momentum = 0.9}},
                                          {.method = LionOptions{}},
                                          {.method = LambOptions{}},
                                          {.method = MuonOptions{}},
                                          {.method = AdagradOptions{}},
                                          {.method = RmsPropOptions{}},
                                          {.state_block = 256}};
  int turn = 0;
  for (const OptimizerOptions& options : all) {
    TempFolder folder;
    const auto plan = [&](int stage) {
      RunPlan each = plan_for(folder, stage, DType::bf16);
      each.layout.sharding.optimizer = options;
      return each;
    };
    const test::ToldRun whole = run(plan(2), StartMode::fresh, 2);
    ASSERT_EQ(whole.steps.size(), 12u);
    for (const int stage : {0, 3})
      if (test::samples(stage + turn, 2)) test::expect_resumes(plan(stage), whole, 10, 2);
    ++turn;
    RunPlan other = plan(1);
    other.max_steps = 14;
    other.layout.sharding.optimizer.method = SgdOptions{.momentum = 0.5};
    other.layout.sharding.optimizer.state_block = 0;
    if (!std::holds_alternative<SgdOptions>(options.method)) {
      EXPECT_THROW(run(other, StartMode::resume, 1), IoError);
    }
  }
}

TEST(Checkpoint, resumes_with_another_number_of_ranks) {
  TempFolder folder;
  RunPlan plan = plan_for(folder, 3, DType::f32);
  const std::vector<double> whole = run(plan, StartMode::fresh, 4).losses();
  fs::remove_all(folder.path() / "out" / "checkpoint-12");
  plan.layout.micro_batch = 8;  // the same train_batch on one rank
  const std::vector<double> rest = run(plan, StartMode::resume, 1).losses();
  ASSERT_EQ(rest.size(), 2u);
  for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(rest[i], whole[10 + i], 1e-5);
}

TEST(Checkpoint, keeps_the_last_ones_and_refuses_to_mix_runs) {
  TempFolder folder;
  RunPlan plan = plan_for(folder, 1, DType::f32);
  plan.save_steps = 3;
  plan.save_total_limit = 2;
  run(plan, StartMode::fresh, 1);
  const auto kept = list_checkpoints(plan.output_dir);
  ASSERT_EQ(kept.size(), 2u);
  EXPECT_EQ(kept[0].filename(), "checkpoint-9");
  EXPECT_EQ(kept[1].filename(), "checkpoint-12");
  EXPECT_THROW(validate_run(plan, StartMode::fresh), ConfigError);
  run(plan, StartMode::overwrite, 1);
  EXPECT_EQ(list_checkpoints(plan.output_dir).size(), 2u);
}

TEST(Checkpoint, a_damaged_block_and_a_missing_manifest_are_found) {
  TempFolder folder;
  const RunPlan plan = plan_for(folder, 2, DType::f32);
  run(plan, StartMode::fresh, 2);
  const fs::path last = list_checkpoints(plan.output_dir).back();
  test::flip_bit(last / "rank-00001.safetensors", -5);
  EXPECT_THROW(run(plan, StartMode::resume, 2), IoError);
  fs::remove(last / "manifest.json");
  EXPECT_NE(list_checkpoints(plan.output_dir).back(), last) << "without a manifest it is no checkpoint";
}

TEST(Checkpoint, the_checkpoint_of_another_model_is_refused) {
  TempFolder folder;
  RunPlan plan = plan_for(folder, 0, DType::f32);
  run(plan, StartMode::fresh, 1);
  plan.model_config["hidden_size"] = 64;
  EXPECT_THROW(validate_run(plan, StartMode::resume), IoError);
}

TEST(HfFolder, an_exported_model_loads_again_with_the_same_values) {
  TempFolder folder;
  const RunPlan plan = plan_for(folder, 3, DType::bf16);
  run(plan, StartMode::fresh, 2);
  const Decoder decoder(ModelConfig::from_folder(plan.output_dir));
  const HfWeights weights(plan.output_dir, decoder);
  EXPECT_EQ(weights.dtype(), DType::bf16);
  EXPECT_TRUE(weights.unused().empty());
  const Checkpoint checkpoint(list_checkpoints(plan.output_dir).back(), decoder);
  const test::WholeTensors exported = test::values_of(weights, decoder);
  for (auto& [name, master] : test::values_of(checkpoint, decoder)) {
    for (float& value : master) value = static_cast<float>(bf16_t(value));
    EXPECT_EQ(exported.at(name), master) << name;
  }
}

}  // namespace
}  // namespace nought::checkpoint_test
