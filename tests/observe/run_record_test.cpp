#include "nought/observe/run_record.h"

#include "support/temp_folder.h"
#include <gtest/gtest.h>

#include "nought/base/error.h"

namespace nought::run_record_test {
namespace {

using test::TempFolder;

RunPlan plan_in(const TempFolder& folder) {
  RunPlan plan;
  plan.output_dir = folder.path().string();
  plan.program = "0.1.0 (abc)";
  plan.resolved = {{"seed", "1", "training.seed"}};
  return plan;
}

RunRecorder recorder_in(const TempFolder& folder) {
  RankMemory memory;
  memory.peak_total = memory.at_peak[0] = 1000;
  return RunRecorder(plan_in(folder), {{"train", "run.json"}, {{"training", {{"seed", 1}}}}, {{"cpu", "A CPU"}}},
                     {.memory = {memory}, .seconds = 0.5});
}

RunSummary start_at(int64_t step) {
  RunSummary summary;
  summary.family = "llama", summary.first_step = step, summary.max_steps = 10, summary.world_size = 2;
  return summary;
}

Json record_in(const TempFolder& folder) { return read_json_file((folder / kRunRecordFile).string()); }

TEST(RunRecord, says_what_a_run_is_from_its_start_on) {
  const TempFolder folder;
  RunRecorder recorder = recorder_in(folder);
  EXPECT_FALSE(std::filesystem::exists(folder / kRunRecordFile)) << "nothing has started";
  recorder.on_start(start_at(0));
  const Json record = record_in(folder);
  EXPECT_EQ(record["format"], "nought-run-record-1");
  EXPECT_EQ(record["status"], "running");
  EXPECT_EQ(record["arguments"], (Json{"train", "run.json"}));
  EXPECT_EQ(record["settings"]["training"]["seed"], 1);
  EXPECT_EQ(record["resolved"][0], (Json{{"key", "seed"}, {"value", "1"}, {"reason", "training.seed"}}));
  EXPECT_EQ(record["run"]["max_steps"], 10);
  EXPECT_EQ(record["predicted"]["memory"][0]["peak_total"], 1000);
  EXPECT_EQ(record["predicted"]["memory"][0]["at_peak"], (Json{{"parameters", 1000}}));
}

TEST(RunRecord, says_how_a_run_ended) {
  const TempFolder folder;
  RankMemory rank;
  rank.peak_total = 1024;
  RunRecorder finished = recorder_in(folder);
  finished.on_start(start_at(0));
  finished.on_finish({rank, rank}, folder.path());
  EXPECT_EQ(record_in(folder)["status"], "finished");
  EXPECT_EQ(record_in(folder)["measured"]["memory"].size(), 2u);
  RunRecorder interrupted = recorder_in(folder);
  interrupted.on_start(start_at(0));
  interrupted.on_interrupt(3, folder.path());
  EXPECT_EQ(record_in(folder)["status"], "interrupted");
  RunRecorder failed = recorder_in(folder);
  failed.on_start(start_at(0));
  failed.on_failure("the loss is \xff");
  EXPECT_EQ(record_in(folder)["status"], "failed");
  EXPECT_EQ(record_in(folder)["error"], "the loss is \xEF\xBF\xBD");
}

TEST(RunRecord, a_run_that_failed_before_its_start_leaves_the_record_of_an_earlier_one) {
  const TempFolder folder;
  recorder_in(folder).on_start(start_at(0));
  recorder_in(folder).on_failure("no memory");
  EXPECT_EQ(record_in(folder)["status"], "running");
}

TEST(RunRecord, a_resumed_run_keeps_the_list_of_starts) {
  const TempFolder folder;
  recorder_in(folder).on_start(start_at(0));
  recorder_in(folder).on_start(start_at(4));
  const Json starts = record_in(folder)["starts"];
  ASSERT_EQ(starts.size(), 2u);
  EXPECT_EQ(starts[1]["step"], 4);
  recorder_in(folder).on_start(start_at(0));
  EXPECT_EQ(record_in(folder)["starts"].size(), 1u) << "it began anew";
}

}  // namespace
}  // namespace nought::run_record_test
