// A run tells its observers what it does, on rank 0, in the order of its steps. What resumes is checkpoint_test's.
#include "nought/train/trainer.h"

#include <fstream>
#include <sstream>

#include "support/custom_optimizers.h"
#include "support/size.h"
#include "support/tiny_llama.h"
#include "support/trainer_runs.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/comm/thread.h"
#include "nought/weights/hf_folder.h"

namespace nought::trainer_test {
namespace {

namespace fs = std::filesystem;
using test::TempFolder;
using test::ToldRun;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

RunPlan plan_in(const TempFolder& folder) {
  RunPlan plan = test::plan_on_lines(folder, 4, 1e-3);
  plan.layout.ranks = 2;
  plan.save_steps = 3;
  return plan;
}

ToldRun told_by(const RunPlan& plan, int ranks = 2, StartMode mode = StartMode::fresh) {
  return test::run_plan(plan, {.ranks = ranks, .mode = mode});
}

TEST(Trainer, tells_every_step_and_checkpoint_in_order_and_exports_at_the_end) {
  const TempFolder folder;
  const RunPlan plan = plan_in(folder);
  const ToldRun told = told_by(plan);
  EXPECT_THAT(told.events, ElementsAre("start after 0", "step 1", "step 2", "step 3", "saved checkpoint-3", "step 4",
                                       "saved checkpoint-4", "finish"));
  EXPECT_EQ(told.exported, plan.output_dir);
  EXPECT_TRUE(holds_weights(told.exported));
  EXPECT_EQ(told.memory.size(), 2u) << "of every rank";
  for (const RankMemory& rank : told.memory) EXPECT_GT(rank.peak_total, 0);
}

TEST(Trainer, begins_with_what_the_run_is) {
  const TempFolder folder;
  const RunPlan plan = plan_in(folder);
  const RunSummary summary = told_by(plan).summary;
  EXPECT_EQ(summary.family, "llama");
  EXPECT_EQ(summary.parameters, Decoder(test::tiny_llama()).parameter_count());
  EXPECT_EQ(summary.world_size, 2);
  EXPECT_EQ(summary.max_steps, 4);
  EXPECT_EQ(summary.tokens_per_step, 4 * 16);
  EXPECT_THAT(summary.notes, IsEmpty());
}

TEST(Trainer, steps_follow_the_schedule_and_count_what_they_send) {
  const TempFolder folder;
  const RunPlan plan = plan_in(folder);
  const ToldRun together = told_by(plan);
  std::vector<double> rates;
  for (const StepReport& report : together.steps) {
    rates.push_back(report.lr);
    EXPECT_GT(report.bytes_sent, 0);
    EXPECT_TRUE(std::isfinite(report.loss));
  }
  EXPECT_THAT(rates, ElementsAre(1e-3, 0.75e-3, 0.5e-3, 0.25e-3));
  RunPlan alone = plan;
  alone.layout.micro_batch = 4;
  for (const StepReport& report : told_by(alone, 1, StartMode::overwrite).steps) EXPECT_EQ(report.bytes_sent, 0);
}

TEST(Trainer, notes_that_the_step_to_profile_is_none_of_the_runs) {
  const TempFolder folder;
  RunPlan plan = plan_in(folder);
  plan.profile = ProfileOptions{};
  plan.profile->step = 40;
  const ToldRun told = told_by(plan, 1);
  EXPECT_THAT(told.summary.notes, Contains(HasSubstr("profile_step is 40, the run makes steps 1 to 4")));
  for (const StepReport& report : told.steps) EXPECT_FALSE(report.profile.has_value());
}

TEST(Trainer, a_run_goes_on_after_its_last_checkpoint_or_not_at_all) {
  const TempFolder folder;
  RunPlan plan = plan_in(folder);
  EXPECT_THROW(told_by(plan, 1, StartMode::resume), IoError) << "nothing to resume";
  told_by(plan);
  plan.max_steps = 6;
  const ToldRun more = told_by(plan, 2, StartMode::resume);
  EXPECT_EQ(more.summary.first_step, 4);
  EXPECT_EQ(more.steps.front().step, 5);
  EXPECT_THAT(more.summary.start, HasSubstr("checkpoint-4"));
}

std::string exported_by(const ToldRun& told) {
  std::ostringstream bytes;
  bytes << std::ifstream(told.exported / "model.safetensors", std::ios::binary).rdbuf();
  return bytes.str();
}

NOUGHT_SIZE(medium);
TEST(Trainer, an_optimizer_from_outside_trains_resumes_elsewhere_and_has_the_weights_of_the_built_in_one) {
  const TempFolder folder;
  RunPlan plan = plan_in(folder);
  plan.layout.sharding.optimizer.weight_decay = 0.1;
  const std::string built_in = exported_by(told_by(plan));
  plan.layout.sharding.optimizer.method = CustomOptions{std::make_shared<test::OwnAdamW>()};
  const ToldRun own = told_by(plan, 2, StartMode::overwrite);
  EXPECT_TRUE(exported_by(own) == built_in);
  const fs::path last = fs::path(plan.output_dir) / "checkpoint-4";
  std::ostringstream manifest;
  manifest << std::ifstream(last / "manifest.json").rdbuf();
  EXPECT_THAT(manifest.str(), HasSubstr("own AdamW"));
  fs::remove_all(last);  // from checkpoint-3 on, at another stage, with the states in a file
  plan.layout.zero_stage = 3;
  plan.layout.sharding.offload_optimizer = {.tier = {Pool::file, folder.path().string()}};
  const ToldRun resumed = told_by(plan, 2, StartMode::resume);
  EXPECT_EQ(resumed.steps.front().step, 4);
  EXPECT_TRUE(exported_by(resumed) == built_in);
}

TEST(Trainer, says_that_it_goes_back_over_a_checkpoint_without_a_manifest) {
  const TempFolder folder;
  const RunPlan plan = plan_in(folder);
  told_by(plan);
  fs::remove(fs::path(plan.output_dir) / "checkpoint-4/manifest.json");
  const ToldRun told = told_by(plan, 2, StartMode::resume);
  EXPECT_EQ(told.summary.first_step, 3);
  EXPECT_THAT(told.summary.notes,
              Contains(HasSubstr("checkpoint-4 behind it has no manifest.json and is not complete")));
}

TEST(Trainer, ranks_continue_the_checkpoint_that_the_first_one_finds) {
  const TempFolder folder;
  const RunPlan plan = plan_in(folder);
  told_by(plan);
  run_ranks(2, [&](Communicator& world, const Context& context) {
    RunPlan mine = plan;
    mine.layout.ranks = 2;
    if (world.rank() == 1) fs::create_directory(mine.output_dir = (folder / "of_rank_1").string());
    Trainer trainer(mine, StartMode::resume, world, context, {});
    EXPECT_EQ(trainer.steps_made(), 4);
  });
}

}  // namespace
}  // namespace nought::trainer_test
