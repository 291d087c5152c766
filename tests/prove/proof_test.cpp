// A proof says what was looked at; ranks stand for others by where they stand; what does not fit this machine is named.
#include "nought/prove/proof.h"

#include <filesystem>
#include <fstream>
#include <set>

#include "prove/jobs.h"
#include "support/agreement.h"
#include "support/message_of.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/models/adapter_modules.h"
#include "nought/prove/machine_limits.h"
#include "nought/prove/rank_classes.h"
#include "nought/prove/state_intervals.h"

namespace nought::proof_test {
namespace {

using ::testing::HasSubstr;

TEST(Proof, small_jobs_have_a_class_for_each_rank_and_large_ones_one_for_each_stage_and_end_of_an_axis) {
  Layout layout{.ranks = 16, .tensor_ranks = 2};
  EXPECT_EQ(classes_of(layout).chosen.size(), 16U);
  layout.ranks = 16384, layout.tensor_ranks = 8, layout.pipeline.ranks = 16;
  const RankClasses classes = classes_of(layout);
  // 16 stages, and at three of them the second and the last along tensor and shard.
  EXPECT_EQ(classes.chosen.size(), 16U + 3 * 4);
  EXPECT_EQ(classes.class_of.size(), 16384U);
  for (size_t i = 0; i < classes.chosen.size(); ++i)
    EXPECT_EQ(classes.class_of[as_index(classes.chosen[i])], static_cast<int>(i));
}

TEST(Proof, what_does_not_fit_this_machine_is_named) {
  RunPlan plan;
  plan.layout.ranks = 4, plan.max_steps = 100, plan.save_steps = 10, plan.save_total_limit = 2;
  const MachineNeeds needs = machine_needs(plan, /*checkpoint_bytes=*/1 << 20, /*export_bytes=*/1 << 19);
  EXPECT_EQ(needs.kept, 3);  // the next is written before the oldest goes
  EXPECT_EQ(needs.disk_bytes(), 3 * (1 << 20) + (1 << 19));
  const MachineLimits enough{.disk_bytes = needs.disk_bytes(),
                             .inodes = needs.inodes(),
                             .open_files = needs.open_files,
                             .maps = needs.maps,
                             .shared_bytes = needs.shared_bytes};
  EXPECT_FALSE(find_shortage(needs, enough, "out"));
  const auto without_one = [&](int64_t MachineLimits::*limit) {
    MachineLimits less = enough;
    less.*limit -= 1;
    return find_shortage(needs, less, "out").value_or(Counterexample{}).text;
  };
  EXPECT_THAT(without_one(&MachineLimits::disk_bytes), HasSubstr("3 checkpoints of 1.00 MiB"));
  EXPECT_THAT(without_one(&MachineLimits::inodes), HasSubstr("files of checkpoints"));
  EXPECT_THAT(without_one(&MachineLimits::open_files), HasSubstr("ulimit -n"));
  EXPECT_THAT(without_one(&MachineLimits::maps), HasSubstr("vm.max_map_count"));
  EXPECT_THAT(without_one(&MachineLimits::shared_bytes), HasSubstr("/dev/shm"));
  EXPECT_FALSE(find_shortage(needs, MachineLimits(), "out"));  // nobody says
}

TEST(Proof, a_property_that_does_not_hold_comes_with_its_counterexample) {
  Proof proof{.ranks = 2, .chosen = {0, 1}, .properties = {{.name = "calls", .claim = "all meet", .covered = "all"}}};
  EXPECT_TRUE(proof.holds());
  proof.properties.push_back(
      {.name = "waits", .claim = "no circle", .covered = "", .counterexample = Counterexample{1, "rank 1 waits"}});
  ASSERT_NE(proof.failed(), nullptr);
  EXPECT_THAT(to_text(proof), HasSubstr("waits: DOES NOT HOLD: rank 1 waits"));
  const OrderedJson json = to_json(proof);
  EXPECT_FALSE(json["holds"].get<bool>());
  EXPECT_EQ(json["properties"][1]["counterexample"]["rank"], 1);
}

TEST(Proof, checkpoints_that_lie_there_count_as_room) {
  const test::TempFolder folder;
  const MachineLimits before = machine_limits(folder.path());
  const auto checkpoint = folder.path() / "checkpoint-1";
  std::filesystem::create_directories(checkpoint);
  std::ofstream(checkpoint / "manifest.json") << "{}";
  { std::ofstream(checkpoint / "rank-0.safetensors") << "x"; }
  std::filesystem::resize_file(checkpoint / "rank-0.safetensors", int64_t{1} << 40);  // a hole
  EXPECT_GT(machine_limits(folder.path()).disk_bytes, before.disk_bytes + (int64_t{1} << 39));
}

TEST(Proof, a_resumed_adapter_reads_its_base_where_the_run_began) {
  const ModelConfig base = test::model_of("llama");
  const ModelConfig config =
      with_adapter(base, resolve_adapter({.r = 4, .targets = {.pattern = "all-linear"}}, base, "RUN.json"));
  Layout layout = test::job_of_four(2, 1, 1, 1);
  const auto missing = [&](bool written, bool asked) {
    return find_missing(run_dry(config, layout, written).saved, run_dry(config, layout, asked).asked, {0, 1, 2, 3});
  };
  EXPECT_FALSE(missing(false, false)) << "a checkpoint of an adapter has no frozen parameters, and none are read of it";
  EXPECT_FALSE(missing(true, true));
  EXPECT_TRUE(missing(false, true)) << "frozen parameters that a resume reads are found missing";
  layout.freezing.codes = WeightCodes{CodeKind::nf4, /*nested=*/true};
  EXPECT_FALSE(missing(false, false)) << "nor of one in codes, which a dry run does not make";
}

TEST(Proof, a_start_is_refused_by_its_counterexample_and_waits_for_no_long_dry_run) {
  DryRuns runs = run_dry(test::model_of("llama", 4), test::job_of_four(1, 2, 1, 2));
  EXPECT_NO_THROW(require_holds(prove_dry_runs(runs)));
  Transcript& broken = runs.ranks.transcripts.front();
  broken.calls.back().bytes += 4;
  const std::string refusal = test::message_of<ConfigError>([&] { require_holds(prove_dry_runs(runs)); });
  EXPECT_THAT(refusal, HasSubstr("the run would not go well: calls: call "));
  EXPECT_EQ(refusal.find('\n'), std::string::npos);
  EXPECT_THROW(run_dry(test::model_of("llama", 4), test::job_of_four(1, 2, 1, 2), true, Deadline::min()),
               DeadlinePassed);
}

TEST(Proof, intervals_of_ranks_that_touch_are_one) {
  StateIntervals saved, asked;
  saved.add("master/a", {8, 12}), saved.add("master/a", {0, 8}), asked.add("master/a", {0, 12});
  saved.close(), asked.close();
  EXPECT_FALSE(find_missing({saved}, {asked}, {0}));
  asked.add("master/a", {12, 13}), asked.close();
  const auto found = find_missing({saved}, {asked}, {0});
  ASSERT_TRUE(found);
  EXPECT_THAT(found->text, HasSubstr("elements 12 to 13 of master/a are read by rank 0"));
}

}  // namespace
}  // namespace nought::proof_test
