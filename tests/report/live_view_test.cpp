#include "nought/report/live_view.h"

#include <cmath>

#include "run_files.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/lines.h"
#include "nought/base/text.h"

namespace nought::live_view_test {
namespace {

using test::run_record;
using test::step_line;
using test::step_lines;
using test::TempFolder;
using test::write_run_files;
using testing::HasSubstr;
using testing::Not;

TEST(LiveView, a_sparkline_has_the_least_at_the_bottom_and_the_greatest_at_the_top) {
  EXPECT_EQ(sparkline(std::vector<double>{0, 7, 3.5}, 10), "▁█▅");
  EXPECT_EQ(sparkline(std::vector<double>{1, std::nan(""), 2}, 3), "▁ █");
  EXPECT_EQ(sparkline(std::vector<double>{0, 0, 8, 8}, 2), "▁█") << "means of two";
  EXPECT_EQ(sparkline(std::vector<double>{5, 5}, 4), "▁▁");
  EXPECT_EQ(sparkline({}, 4), "");
}

TEST(LiveView, keeps_to_the_terminal_and_tells_step_loss_memory_and_the_last_event) {
  const TempFolder folder;
  std::string lines = step_lines(100);
  for (int64_t step = 101; step <= 140; ++step) {
    nlohmann::json line = step_line(step, 0.5);
    line["spike"] =
        fmt::format("the loss of step {} is far too large for one line of a terminal that has 80 columns", step);
    line["rank_seconds"] = {{"forward", {{"min", 0.001}, {"median", 0.002}, {"max", 0.003}, {"slowest_rank", 1}}}};
    lines += line.dump() + "\n";
  }
  const std::string path = write_run_files(folder, "out", lines, run_record({}));
  for (const int rows : {3, 24}) {
    const std::string view = live_view(read_run_folder(path), 80, rows);
    EXPECT_EQ(std::count(view.begin(), view.end(), '\n'), rows);
    for (const std::string& line : split(view, '\n')) EXPECT_LE(columns_of(line), 80) << line;
  }
  const std::string view = live_view(read_run_folder(path), 80, 24);
  for (const char* part : {"out  finished", "step 140/20", "0.5000", "1.00K tokens/s", "rank 0: 1.00 KiB",
                           "step 140: spike", "slowest is rank 1", "left"})
    EXPECT_THAT(view, HasSubstr(part));
}

TEST(LiveView, reads_the_end_of_a_long_file_alone) {
  const TempFolder folder;
  const std::string path = write_run_files(folder, "out", step_lines(1000), run_record({}));
  const RunFolder run = read_run_folder(path, 1000);
  EXPECT_EQ(run.steps.steps().back(), 1000);
  EXPECT_LT(run.steps.rows(), 20u);
  EXPECT_TRUE(run.problems.empty()) << "the first line is cut";
}

TEST(LiveView, a_run_without_steps_and_record_is_shown) {
  const TempFolder folder;
  folder.write("out/metrics.jsonl", "");
  EXPECT_THAT(live_view(read_run_folder(folder / "out"), 80, 24), HasSubstr("out  stopped"));
}

}  // namespace
}  // namespace nought::live_view_test
