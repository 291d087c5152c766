#include "nought/report/curves.h"

#include <algorithm>
#include <cmath>

#include "run_files.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::curves_test {
namespace {

using test::run_record;
using test::step_line;
using test::step_lines;
using test::TempFolder;
using test::write_run_files;
using testing::DoubleNear;
using testing::ElementsAre;

/// The names of the charts with the kinds of their curves.
std::vector<std::string> kinds_in(const std::vector<CurveChart>& charts) {
  std::vector<std::string> kinds;
  for (const CurveChart& chart : charts)
    for (const Curve& curve : chart.curves) kinds.push_back(fmt::format("{} {} {}", chart.name, curve.run, curve.kind));
  return kinds;
}

TEST(Curves, few_points_all_stay_and_of_many_each_stretch_keeps_its_least_and_greatest) {
  StepTable table;
  std::vector<double> values;
  for (int64_t step = 1; step <= 1000; ++step) {
    values.push_back(step == 333 ? 99 : step == 777 ? -99 : std::sin(static_cast<double>(step)));
    table.add(step, {{"loss", values.back()}});
  }
  EXPECT_EQ(thinned_curve(table, values, values, 500).values, values);
  const Curve curve = thinned_curve(table, values, values, 50);
  EXPECT_LE(curve.steps.size(), 101u);
  EXPECT_TRUE(std::is_sorted(curve.steps.begin(), curve.steps.end()));
  EXPECT_EQ(curve.steps.back(), 1000) << "where the run is now";
  EXPECT_EQ(*std::max_element(curve.values.begin(), curve.values.end()), 99);
  EXPECT_EQ(*std::min_element(curve.values.begin(), curve.values.end()), -99);
  for (size_t i = 0; i < curve.steps.size(); ++i)
    EXPECT_EQ(curve.values[i], values[static_cast<size_t>(curve.steps[i] - 1)]) << "each is a point of the run";
}

TEST(Curves, numbers_beside_what_is_none_are_not_lost) {
  StepTable table;
  std::vector<double> values(90, std::nan(""));
  values[40] = 7;
  for (int64_t step = 1; step <= 90; ++step) table.add(step, Json::object());
  const Curve curve = thinned_curve(table, values, values, 3);
  EXPECT_EQ(std::count(curve.values.begin(), curve.values.end(), 7.0), 1);
}

TEST(Curves, smoothing_keeps_a_constant_and_leaves_out_what_is_no_number) {
  EXPECT_THAT(smoothed(std::vector<double>{3, 3, std::nan(""), 3}, 9), testing::Each(DoubleNear(3, 1e-12)));
  EXPECT_THAT(smoothed(std::vector<double>{0, 1}, 3), ElementsAre(0, DoubleNear(2.0 / 3, 1e-12)))
      << "weights 1/2 and 1/4 of the last and the first";
  EXPECT_TRUE(std::isnan(smoothed(std::vector<double>{std::nan("")}, 3)[0]));
}

TEST(Curves, a_chart_has_the_curves_of_all_runs_and_a_column_that_a_run_lacks_is_no_error) {
  const TempFolder folder;
  nlohmann::json other = step_line(1, 5);
  other["rewards/margins"] = 0.5, other.erase("mfu");
  folder.write("a/metrics.discarded.jsonl", step_line(3, 1).dump() + "\n");
  const auto runs = read_run_folders({write_run_files(folder, "a",
                                                      step_lines(4) + R"({"step":2,"eval_loss":0.5,"eval_seconds":9})"
                                                                      "\n",
                                                      run_record({})),
                                      write_run_files(folder, "b", other.dump() + "\n", run_record({}))});
  EXPECT_THAT(kinds_in(charts_of(runs)),
              ElementsAre("loss 0 raw", "loss 0 discarded", "loss 0 validation", "loss 1 raw", "lr 0 raw", "lr 1 raw",
                          "grad_norm 0 raw", "grad_norm 1 raw", "tokens_per_second 0 raw", "tokens_per_second 1 raw",
                          "mfu 0 raw", "bytes_sent 0 raw", "bytes_sent 1 raw", "rewards/margins 1 raw"));
}

TEST(Curves, time_is_that_of_the_steps_without_the_pauses_between_starts) {
  const TempFolder folder;
  std::string lines;
  for (int64_t step = 1; step <= 8; ++step) {
    nlohmann::json line = step_line(step, 1);
    line["time"] = 100.0 + static_cast<double>(step) + (step > 4 ? 86400 : 0);  // resumed a day later
    lines += line.dump() + "\n";
  }
  const auto runs = read_run_folders({write_run_files(folder, "a", lines, run_record({}))});
  const std::vector<CurveChart> charts = charts_of(runs);
  const Curve& loss = charts[0].curves[0];
  EXPECT_EQ(loss.seconds.front(), 0);
  EXPECT_LT(loss.seconds.back(), 10);
}

}  // namespace
}  // namespace nought::curves_test
