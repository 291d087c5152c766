#include "support/temp_folder.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nought/observe/metrics.h"

namespace nought::metrics_fields_test {
namespace {

using test::TempFolder;

std::vector<nlohmann::json> lines_of(const std::filesystem::path& file) {
  std::vector<nlohmann::json> lines;
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

/// Every number is another one, so that none can stand for another.
StepReport a_report() {
  StepReport report{.step = 7, .loss = 1.5, .grad_norm = 2.5, .lr = 3.5, .seconds = 4.5};
  report.tokens_per_second = 5.5, report.mfu = 6.5, report.bytes_sent = 75;
  report.loss_scale = 8.5, report.next_loss_scale = 9.5, report.skipped = true;
  report.breakdown = {.forward = 10.5,
                      .backward = 11.5,
                      .optimizer = 12.5,
                      .communication = 16,
                      .exposed = 4,
                      .offload = 32,
                      .offload_exposed = 16};
  report.memory = {.forward = 13, .backward = 14, .update = 15};
  report.nonfinite = "block.1";
  report.spike = "step 7";
  report.ranks = RankComparison{.steps = 17,
                                .forward = {18.5, 19.5, 20.5, 1},
                                .backward = {21.5, 22.5, 23.5, 2},
                                .communication = {24.5, 25.5, 26.5, 3},
                                .data = {27.5, 28.5, 29.5, 4},
                                .warning = "rank 1"};
  return report;
}

TEST(Metrics, each_number_of_a_step_stands_under_its_name) {
  const TempFolder folder;
  MetricsWriter writer(folder.path());
  writer.on_start({});
  writer.on_step(a_report());
  const nlohmann::json expected{
      {"step", 7},
      {"loss", 1.5},
      {"grad_norm", 2.5},
      {"lr", 3.5},
      {"tokens_per_second", 5.5},
      {"mfu", 6.5},
      {"bytes_sent", 75},
      {"loss_scale", 8.5},
      {"seconds", 4.5},
      {"forward_seconds", 10.5},
      {"backward_seconds", 11.5},
      {"optimizer_seconds", 12.5},
      {"communication_seconds", 16.0},
      {"communication_hidden", 0.75},
      {"offload_seconds", 32.0},
      {"offload_hidden", 0.5},
      {"forward_bytes", 13},
      {"backward_bytes", 14},
      {"update_bytes", 15},
      {"rank_seconds",
       {{"steps", 17},
        {"forward", {{"min", 18.5}, {"median", 19.5}, {"max", 20.5}, {"slowest_rank", 1}}},
        {"backward", {{"min", 21.5}, {"median", 22.5}, {"max", 23.5}, {"slowest_rank", 2}}},
        {"communication", {{"min", 24.5}, {"median", 25.5}, {"max", 26.5}, {"slowest_rank", 3}}},
        {"data", {{"min", 27.5}, {"median", 28.5}, {"max", 29.5}, {"slowest_rank", 4}}}}},
      {"straggler", "rank 1"},
      {"spike", "step 7"},
      {"skipped", true},
      {"nonfinite", "block.1"}};
  std::vector<nlohmann::json> lines = lines_of(folder / "metrics.jsonl");
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_GT(lines[0].at("time").get<double>(), 1.7e9);  // seconds since 1970
  lines[0].erase("time");
  EXPECT_EQ(lines[0], expected);
}

TEST(Metrics, a_resumed_run_keeps_the_lines_up_to_its_checkpoint) {
  const TempFolder folder;
  folder.write("metrics.jsonl", "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n{\"st");
  MetricsWriter writer(folder.path());
  RunSummary summary;
  summary.first_step = 2, summary.max_steps = 9;
  writer.on_start(summary);
  writer.on_step({.step = 3, .loss = 0.25});
  const std::vector<nlohmann::json> lines = lines_of(folder / "metrics.jsonl");
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[1], nlohmann::json({{"step", 2}}));
  EXPECT_EQ(lines[2].at("loss"), 0.25);
}

}  // namespace
}  // namespace nought::metrics_fields_test
