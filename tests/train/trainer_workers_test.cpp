// Runs of workers that make local steps, and of ranks that serve parameters: their reports, and how they go on.
#include <algorithm>
#include <fstream>

#include "support/trainer_runs.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/train/trainer.h"

namespace nought::trainer_workers_test {
namespace {

using test::read_bytes;
using test::TempFolder;
using test::ToldRun;
using testing::HasSubstr;

RunPlan plan_in(const TempFolder& folder, int ranks = 2) {
  RunPlan plan = test::plan_on_lines(folder, 8);
  plan.layout.ranks = ranks;
  return plan;
}

RunPlan local_plan(const TempFolder& folder, int workers = 2) {
  RunPlan plan = plan_in(folder, workers);
  plan.layout.replicas = workers;
  plan.layout.local_steps = LocalStepsOptions{.sync_every = 3};
  return plan;
}

RunPlan async_plan(const TempFolder& folder, int64_t staleness) {
  RunPlan plan = plan_in(folder);
  plan.layout.zero_stage = 1;
  plan.layout.staleness = staleness;
  return plan;
}

ToldRun run(const RunPlan& plan, StartMode mode = StartMode::fresh, int64_t stop_after = 0) {
  return test::run_plan(
      plan,
      {.ranks = plan.layout.ranks, .mode = mode, .stopped_rank = plan.layout.ranks - 1, .stopped_in_step = stop_after});
}

TEST(TrainerWorkers, a_run_that_is_stopped_between_meetings_goes_on_bit_for_bit) {
  const TempFolder whole_folder, folder;
  const ToldRun whole = run(local_plan(whole_folder));
  const RunPlan plan = local_plan(folder);
  const ToldRun first = run(plan, StartMode::fresh, /*stop_after=*/5), rest = run(plan, StartMode::resume);
  std::vector<double> both = first.losses();
  ASSERT_EQ(both.size(), 5u);
  for (const double loss : rest.losses()) both.push_back(loss);
  EXPECT_EQ(both, whole.losses());
  EXPECT_EQ(read_bytes(folder / "out/model.safetensors"), read_bytes(whole_folder / "out/model.safetensors"));
}

TEST(TrainerWorkers, bytes_between_workers_are_sent_at_meetings) {
  const TempFolder folder;
  const ToldRun events = run(local_plan(folder));
  for (size_t i = 0; i < events.steps.size(); ++i) {
    // Six numbers tell how a step went, and an all-reduce over two ranks sends them once.
    const bool meets = (i + 1) % 3 == 0;
    EXPECT_EQ(events.steps[i].bytes_sent == 6 * 8, !meets) << i;
    EXPECT_EQ(events.steps[i].bytes_sent > 10000, meets) << i;
  }
}

TEST(TrainerWorkers, another_number_of_workers_begins_from_what_these_agreed_on_and_says_so) {
  const TempFolder folder;
  run(local_plan(folder), StartMode::fresh, /*stop_after=*/5);
  for (const int workers : {1, 4}) {
    RunPlan plan = local_plan(folder, workers);
    if (workers == 1) plan.layout.local_steps.reset();
    plan.resume_from = (folder / "out/checkpoint-5").string();
    plan.output_dir = (folder / fmt::format("other{}", workers)).string();
    const ToldRun events = run(plan, StartMode::resume);
    EXPECT_THAT(events.summary.notes, testing::Contains(HasSubstr("agreed on last"))) << workers;
    EXPECT_EQ(events.steps.front().step, 6);
    EXPECT_LT(events.losses().back(), 5.0);
  }
}

TEST(TrainerWorkers, servers_without_staleness_report_and_export_what_synchronous_training_does) {
  const TempFolder plain_folder, folder;
  RunPlan plain = plan_in(plain_folder);
  plain.layout.zero_stage = 1;
  const ToldRun synchronous = run(plain), asynchronous = run(async_plan(folder, 0));
  EXPECT_EQ(asynchronous.losses(), synchronous.losses());
  EXPECT_EQ(read_bytes(folder / "out/model.safetensors"), read_bytes(plain_folder / "out/model.safetensors"));
}

TEST(TrainerWorkers, a_save_waits_for_all_updates_so_that_a_run_goes_on_as_one_that_saved_there) {
  const TempFolder whole_folder, folder;
  RunPlan saving = async_plan(whole_folder, 2);
  saving.save_steps = 4;
  const ToldRun whole = run(saving);
  ASSERT_TRUE(whole.steps.back().staleness);
  EXPECT_EQ(whole.steps.back().staleness->most(), 2);
  EXPECT_EQ(whole.steps.back().staleness->histogram, (std::vector<int64_t>{2, 2, 4})) << "it begins anew after a save";
  const RunPlan plan = async_plan(folder, 2);
  // The wish to stop travels with the gradients: it is known when their update is complete.
  run(plan, StartMode::fresh, /*stop_after=*/2);
  run(plan, StartMode::resume);
  EXPECT_EQ(read_bytes(folder / "out/model.safetensors"), read_bytes(whole_folder / "out/model.safetensors"));
}

}  // namespace
}  // namespace nought::trainer_workers_test
