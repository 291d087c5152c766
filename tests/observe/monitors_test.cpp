#include "nought/observe/monitors.h"

#include "support/event_records.h"
#include "support/temp_folder.h"
#include <gtest/gtest.h>

namespace nought::monitors_test {
namespace {

namespace fs = std::filesystem;

StepReport report_of(int64_t step, double loss) { return {.step = step, .loss = loss, .grad_norm = 2, .lr = 0.5}; }

TEST(TensorBoardMonitor, writes_four_scalars_for_each_step) {
  const test::TempFolder folder;
  TensorBoardMonitor monitor(folder.path(), 8);
  monitor.on_start({});
  monitor.on_step(report_of(1, 3));
  monitor.on_step(report_of(2, 2));
  const fs::path file = fs::directory_iterator(folder.path())->path();
  EXPECT_EQ(file.filename().string().find("events.out.tfevents."), 0u);
  EXPECT_EQ(test::records_of(test::read_bytes(file)).size(), 1u + 2 * 4);
}

TEST(TensorBoardMonitor, has_the_names_and_steps_of_transformers_where_they_are_asked_for) {
  const test::TempFolder folder;
  TensorBoardMonitor monitor(folder.path(), 1, ScalarNames::transformers);
  monitor.on_start({});
  monitor.on_step(report_of(1, 3));
  monitor.on_validation(1, {});
  const std::string bytes = test::read_bytes(fs::directory_iterator(folder.path())->path());
  for (const char* tag : {"train/loss", "train/learning_rate", "train/grad_norm", "eval/loss"})
    EXPECT_NE(bytes.find(tag), std::string::npos) << tag;
  EXPECT_EQ(bytes.find("Samples"), std::string::npos);
}

TEST(CsvMonitor, the_times_of_ranks_stand_beside_the_losses_where_they_were_compared) {
  const test::TempFolder folder;
  CsvMonitor monitor(folder.path(), 8);
  monitor.on_start({});
  monitor.on_step(report_of(1, 3));
  StepReport compared = report_of(2, 3);
  compared.ranks = RankComparison{.steps = 1, .forward = {1, 2, 4, 3}, .backward = {}, .communication = {}, .data = {}};
  monitor.on_step(compared);
  const auto rows = [&](const std::string& name) {
    const std::string bytes = test::read_bytes(folder.path() / ("Train_Samples_" + name + ".csv"));
    return bytes.substr(bytes.find('\n') + 1);
  };
  EXPECT_EQ(rows("forward_seconds_min"), "16,1\n");
  EXPECT_EQ(rows("forward_seconds_median"), "16,2\n");
  EXPECT_EQ(rows("forward_seconds_max"), "16,4\n");
  EXPECT_EQ(rows("forward_slowest_rank"), "16,3\n");
  EXPECT_EQ(rows("data_seconds_max"), "16,0\n");
}

TEST(CsvMonitor, a_row_counts_samples_and_a_resumed_run_keeps_the_rows_before_it) {
  const test::TempFolder folder;
  {
    CsvMonitor monitor(folder.path(), 8);
    monitor.on_start({});
    for (int64_t step = 1; step <= 3; ++step) monitor.on_step(report_of(step, 4.0 - static_cast<double>(step)));
  }
  const fs::path losses = folder.path() / "Train_Samples_train_loss.csv";
  EXPECT_EQ(test::read_bytes(losses), "step,Train/Samples/train_loss\n8,3\n16,2\n24,1\n");
  RunSummary resumed;
  resumed.first_step = 2;
  CsvMonitor monitor(folder.path(), 8);
  monitor.on_start(resumed);
  monitor.on_step(report_of(3, 0.25));
  EXPECT_EQ(test::read_bytes(losses), "step,Train/Samples/train_loss\n8,3\n16,2\n24,0.25\n");
}

}  // namespace
}  // namespace nought::monitors_test
