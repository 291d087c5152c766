#include "nought/report/run_folder.h"

#include <cmath>

#include "run_files.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"
#include "nought/checkpoint/output_folder.h"

namespace nought::run_folder_test {
namespace {

using test::message_of;
using test::run_record;
using test::step_line;
using test::step_lines;
using test::TempFolder;
using test::write_run_files;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(RunFolder, has_every_number_of_every_step_and_validation_and_every_sample) {
  const TempFolder folder;
  const RunFolder run =
      read_run_folder(write_run_files(folder, "out",
                                      step_lines(2) + R"({"step":2,"eval_loss":0.5,"eval_targets":9})"
                                                      "\n"
                                                      R"({"step":2,"sample_prompt":"a","sample_text":"</script>"})"
                                                      "\n",
                                      run_record({{"training", {{"seed", 1}, {"output_dir", "out"}}}})));
  EXPECT_EQ(run.name, "out");
  EXPECT_THAT(run.steps.steps(), ElementsAre(1, 2));
  EXPECT_THAT(*run.steps.find("loss"), ElementsAre(2.0, 1.0));
  EXPECT_THAT(*run.steps.find("bytes_sent"), ElementsAre(64.0, 64.0));
  EXPECT_EQ(run.steps.find("eval_loss"), nullptr);
  EXPECT_THAT(*run.validations.find("eval_loss"), ElementsAre(0.5));
  ASSERT_EQ(run.samples.size(), 1u);
  EXPECT_EQ(run.samples[0].text, "</script>");
  EXPECT_EQ(run.state, RunState::finished);
  EXPECT_EQ(run.number("/run/max_steps"), 20);
  EXPECT_THAT(run.settings(), ElementsAre(std::pair<std::string, std::string>("training.output_dir", "\"out\""),
                                          std::pair<std::string, std::string>("training.seed", "1")));
  EXPECT_TRUE(run.problems.empty() && run.events.empty());
}

TEST(RunFolder, a_loss_that_is_no_number_is_nan_and_what_happened_is_an_event) {
  const TempFolder folder;
  nlohmann::json bad = step_line(2, 0), slow = step_line(3, 1);
  bad["loss"] = nullptr, bad["skipped"] = true;
  slow["straggler"] = "rank 1 on b is slow", slow["spike"] = "the loss is 9";
  const RunFolder run = read_run_folder(
      write_run_files(folder, "out", step_lines(1) + bad.dump() + "\n" + slow.dump() + "\n", run_record({})));
  EXPECT_TRUE(std::isnan(run.steps.find("loss")->at(1)));
  EXPECT_EQ(run.steps.last("loss"), 1.0);
  std::vector<std::string> kinds;
  for (const RunEvent& event : run.events) kinds.push_back(fmt::format("{} {}", event.step, event.kind));
  EXPECT_THAT(kinds, ElementsAre("2 skipped", "3 spike", "3 straggler"));
}

TEST(RunFolder, a_broken_line_is_named_and_the_rest_is_read) {
  const TempFolder folder;
  const std::string path = write_run_files(
      folder, "out", step_lines(1) + "{\"step\":2,\n[1]\n" + step_line(3, 1).dump() + "\n{\"st", run_record({}));
  const RunFolder run = read_run_folder(path);
  EXPECT_THAT(run.steps.steps(), ElementsAre(1, 3));
  EXPECT_THAT(run.problems, ElementsAre(HasSubstr("metrics.jsonl line 2"), HasSubstr("metrics.jsonl line 3")))
      << "the last line is not yet written whole, which is no problem";
}

TEST(RunFolder, steps_that_a_resumed_run_made_again_are_a_table_for_each_time) {
  const TempFolder folder;
  folder.write("out/metrics.discarded.jsonl",
               step_line(5, 1).dump() + "\n" + step_line(6, 1).dump() + "\n" + step_line(5, 2).dump() + "\n");
  nlohmann::json record = run_record({});
  record["starts"].push_back({{"step", 4}, {"time", 1.0}, {"ranks", 1}});
  const RunFolder run = read_run_folder(write_run_files(folder, "out", step_lines(8), record));
  ASSERT_EQ(run.discarded.size(), 2u);
  EXPECT_THAT(run.discarded[0].steps(), ElementsAre(5, 6));
  EXPECT_THAT(run.discarded[1].steps(), ElementsAre(5));
  ASSERT_EQ(run.events.size(), 1u);
  EXPECT_EQ(run.events[0].text, "resumed after step 4 on 1 rank");
}

TEST(RunFolder, its_state_is_that_of_the_record_but_while_a_process_holds_it) {
  const TempFolder folder;
  nlohmann::json record = run_record({});
  record["status"] = "running";
  const std::string path = write_run_files(folder, "out", "", record);
  EXPECT_EQ(read_run_folder(path).state, RunState::stopped) << "it was killed";
  {
    const OutputFolder held(path);
    EXPECT_EQ(read_run_folder(path).state, RunState::running);
  }
  record["status"] = "failed", record["error"] = "the loss is nan\nin rank 1";
  const RunFolder failed = read_run_folder(write_run_files(folder, "out", step_lines(3), record));
  EXPECT_EQ(failed.state, RunState::failed);
  ASSERT_EQ(failed.events.size(), 1u);
  EXPECT_EQ(failed.events[0].step, 3);
  EXPECT_EQ(failed.events[0].text, "the loss is nan in rank 1");
}

TEST(RunFolder, a_folder_without_a_record_is_read) {
  const TempFolder folder;
  folder.write("out/metrics.jsonl", step_lines(1));
  const RunFolder run = read_run_folder(folder / "out");
  EXPECT_EQ(run.steps.rows(), 1u);
  EXPECT_EQ(run.number("/run/max_steps", -1), -1);
  EXPECT_TRUE(run.settings().empty());
}

TEST(RunFolder, what_is_no_run_or_of_a_newer_version_is_refused_in_one_line) {
  const TempFolder folder;
  folder.write("out/metrics.jsonl", "");
  folder.write("empty/file", "");
  EXPECT_THAT(message_of<Error>([&] { read_run_folder(folder / "none"); }), HasSubstr("there is no such folder"));
  EXPECT_THAT(message_of<Error>([&] { read_run_folder(folder / "empty"); }), HasSubstr("it has no metrics.jsonl"));
  EXPECT_THAT(message_of<Error>([&] { read_run_folder(folder / "empty/file"); }), HasSubstr("is a file"));
  folder.write("out/run_record.json", R"({"format": "nought-run-record-2"})");
  EXPECT_THAT(message_of<Error>([&] { read_run_folder(folder / "out"); }), HasSubstr("nought-run-record-2"));
  folder.write("out/run_record.json", "[");
  EXPECT_THAT(message_of<Error>([&] { read_run_folder(folder / "out"); }), HasSubstr("run_record.json"));
}

TEST(RunFolder, runs_of_one_name_are_told_apart_by_their_paths) {
  const TempFolder folder;
  const std::string a = write_run_files(folder, "a/out", "", run_record({})),
                    b = write_run_files(folder, "b/out", "", run_record({})),
                    c = write_run_files(folder, "c", "", run_record({}));
  const std::vector<RunFolder> runs = read_run_folders({a, b, c});
  EXPECT_EQ(runs[0].name, a);
  EXPECT_EQ(runs[1].name, b);
  EXPECT_EQ(runs[2].name, "c");
}

}  // namespace
}  // namespace nought::run_folder_test
