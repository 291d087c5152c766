#include "nought/observe/metrics.h"

#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nought/base/error.h"
#include "nought/train/observer.h"

namespace nought::metrics_test {
namespace {

using nlohmann::json;
using test::TempFolder;
using testing::ElementsAre;

std::vector<json> lines_of(const TempFolder& folder) {
  std::vector<json> lines;
  std::ifstream file(folder / "metrics.jsonl");
  for (std::string line; std::getline(file, line);) lines.push_back(json::parse(line));
  return lines;
}

StepReport report_of(int64_t step) {
  return {.step = step, .loss = 1.0 / 3, .grad_norm = 0.1, .lr = 1e-3, .tokens_per_second = 5, .mfu = 0.5};
}

RunSummary start_of(int64_t first_step) {
  RunSummary summary;
  summary.first_step = first_step, summary.max_steps = 10;
  return summary;
}

TEST(Metrics, a_line_per_step_whose_numbers_read_back_to_the_same_bits) {
  const TempFolder folder;
  MetricsWriter writer(folder.path());
  writer.on_start(start_of(0));
  writer.on_step(report_of(1));
  ASSERT_EQ(lines_of(folder).size(), 1u) << "it is on disk at once";
  const json line = lines_of(folder)[0];
  EXPECT_EQ(line.at("loss").get<double>(), 1.0 / 3);
  EXPECT_EQ(line.at("step"), 1);
  EXPECT_EQ(line.at("skipped"), false);
  for (const char* asked_for : {"loss_scale", "forward_seconds", "forward_bytes", "nonfinite", "expert_load"})
    EXPECT_FALSE(line.contains(asked_for)) << asked_for;
}

TEST(Metrics, lines_that_a_disk_does_not_take_are_written_later_and_three_in_a_row_are_an_error) {
  const TempFolder folder;
  std::vector<std::string> notes;
  MetricsWriter writer(folder.path());
  writer.set_note([&](const std::string& line) { notes.push_back(line); });
  writer.on_start(start_of(0));
  writer.on_step(report_of(1));
  const auto block = [&] {
    std::filesystem::remove(folder / "metrics.jsonl");
    std::filesystem::create_directory(folder / "metrics.jsonl");
  };
  block();
  writer.on_step(report_of(2));
  writer.on_step(report_of(3));
  EXPECT_EQ(notes.size(), 1) << "it is told once";
  std::filesystem::remove(folder / "metrics.jsonl");
  writer.on_step(report_of(4));
  ASSERT_EQ(lines_of(folder).size(), 4);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(lines_of(folder)[static_cast<size_t>(i)].at("step"), i + 1);
  EXPECT_EQ(notes.size(), 2);
  block();
  writer.on_step(report_of(5));
  writer.on_step(report_of(6));
  EXPECT_THAT(test::message_of<IoError>([&] { writer.on_step(report_of(7)); }),
              testing::HasSubstr("3 lines in a row could not be written"));
  std::filesystem::remove(folder / "metrics.jsonl");
  writer.on_interrupt(7, {});
  EXPECT_EQ(lines_of(folder).size(), 7);
}

TEST(Metrics, a_sample_is_a_line_of_its_own_whatever_its_bytes) {
  const TempFolder folder;
  MetricsWriter writer(folder.path());
  writer.on_start(start_of(0));
  writer.on_sample(3, "a\nb", "\xff\"");
  const json line = lines_of(folder).at(0);
  EXPECT_EQ(line, (json{{"step", 3}, {"sample_prompt", "a\nb"}, {"sample_text", "\xEF\xBF\xBD\""}}));
}

TEST(Metrics, what_is_asked_for_has_fields_of_its_own) {
  const TempFolder folder;
  MetricsWriter writer(folder.path());
  writer.on_start(start_of(0));
  StepReport report = report_of(1);
  report.loss_scale = 1024, report.skipped = true, report.nonfinite = "head";
  report.breakdown = StepBreakdown{.forward = 1, .backward = 2, .optimizer = 3, .communication = 4, .exposed = 1};
  report.memory = PhaseMemory{.forward = 10, .backward = 20, .update = 30};
  report.experts.chosen = {{3, 1}};
  report.experts.dropped = 1;
  writer.on_step(report);
  const json line = lines_of(folder)[0];
  EXPECT_EQ(line.at("loss_scale"), 1024);
  EXPECT_EQ(line.at("skipped"), true);
  EXPECT_EQ(line.at("nonfinite"), "head");
  EXPECT_EQ(line.at("backward_seconds"), 2);
  EXPECT_EQ(line.at("communication_hidden"), 0.75);
  EXPECT_EQ(line.at("update_bytes"), 30);
  EXPECT_THAT(line.at("expert_load")[0], ElementsAre(3, 1));
  EXPECT_EQ(line.at("expert_dropped"), 1);
}

TEST(Metrics, a_validation_is_a_line_with_names_of_its_own) {
  const TempFolder folder;
  MetricsWriter writer(folder.path());
  writer.on_start(start_of(0));
  writer.on_validation(4, {.loss = 0, .targets = 7});
  const json line = lines_of(folder)[0];
  EXPECT_EQ(line.at("step"), 4);
  EXPECT_EQ(line.at("eval_perplexity"), 1);
  EXPECT_EQ(line.at("eval_targets"), 7);
  EXPECT_FALSE(line.contains("eval_bits_per_byte")) << "nobody knows how many bytes";
  EXPECT_FALSE(line.contains("loss"));
}

TEST(Metrics, a_resumed_run_keeps_the_lines_before_it_and_no_broken_one) {
  const TempFolder folder;
  {
    MetricsWriter writer(folder.path());
    writer.on_start(start_of(0));
    for (int64_t step = 1; step <= 4; ++step) writer.on_step(report_of(step));
    writer.on_validation(2, {});
  }
  std::ofstream(folder / "metrics.jsonl", std::ios::app) << "{\"step\": 1, \"lo";  // killed while it wrote
  MetricsWriter writer(folder.path());
  writer.on_start(start_of(2));
  writer.on_step(report_of(3));
  std::vector<int64_t> steps;
  for (const json& line : lines_of(folder)) steps.push_back(line.at("step"));
  EXPECT_THAT(steps, ElementsAre(1, 2, 2, 3));
}

TEST(Metrics, the_steps_that_are_made_again_stay_in_a_file_of_their_own_until_a_run_begins_anew) {
  const TempFolder folder;
  for (const int64_t first : {0, 2, 2}) {
    MetricsWriter writer(folder.path());
    writer.on_start(start_of(first));
    for (int64_t step = first + 1; step <= 4; ++step) writer.on_step(report_of(step));
  }
  std::vector<int64_t> steps;
  std::ifstream discarded(folder / kDiscardedMetricsFile);
  for (std::string line; std::getline(discarded, line);) steps.push_back(json::parse(line).at("step"));
  EXPECT_THAT(steps, ElementsAre(3, 4, 3, 4));
  MetricsWriter(folder.path()).on_start(start_of(0));
  EXPECT_FALSE(std::filesystem::exists(folder / kDiscardedMetricsFile));
}

TEST(Metrics, lines_of_before_that_cannot_be_read_are_not_written_over) {
  const TempFolder folder;
  std::filesystem::create_symlink("metrics.jsonl", folder / "metrics.jsonl");  // which leads nowhere
  MetricsWriter writer(folder.path());
  EXPECT_THAT([&] { writer.on_start(start_of(2)); },
              testing::ThrowsMessage<IoError>(testing::HasSubstr("metrics.jsonl: cannot open: Too many levels")));
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "metrics.jsonl"));
}

TEST(Metrics, none_is_lost_with_a_folder_that_is_removed_or_moved_in_mid_run) {
  const TempFolder folder;
  std::filesystem::create_directory(folder / "out");
  MetricsWriter writer(folder / "out");
  writer.on_start(start_of(0));
  writer.on_step(report_of(1));
  std::filesystem::rename(folder / "out", folder / "moved");
  writer.on_step(report_of(2));
  std::filesystem::remove_all(folder / "out");
  writer.on_validation(2, {});
  writer.on_step(report_of(3));
  std::vector<int64_t> steps;
  std::ifstream file(folder / "out/metrics.jsonl");
  for (std::string line; std::getline(file, line);) steps.push_back(json::parse(line).at("step"));
  EXPECT_THAT(steps, ElementsAre(1, 2, 2, 3));
}

TEST(Metrics, a_folder_that_cannot_be_written_is_an_error) {
  const TempFolder folder;
  MetricsWriter writer(folder.write("file", "x"));
  EXPECT_THROW(writer.on_start(start_of(0)), IoError);
}

}  // namespace
}  // namespace nought::metrics_test
