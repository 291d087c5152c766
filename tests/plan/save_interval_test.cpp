// How often to save, by Young's formula, and what a save costs.
#include "nought/plan/save_interval.h"

#include <cmath>

#include "support/message_of.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"

namespace nought::save_interval_test {
namespace {

using testing::HasSubstr;

/// The part of the time that saves and failures cost, if the run saves each `interval` seconds.
double cost_of(double interval, double save, double between_failures) {
  return save / interval + interval / (2 * between_failures);
}

TEST(SaveInterval, costs_the_least_of_all_intervals) {
  for (const double save : {0.01, 5.0, 600.0})
    for (const double between : {3600.0, 86400.0 * 30}) {
      const SaveInterval best = save_interval(save, between, 0.5);
      const double least = cost_of(best.seconds, save, between);
      EXPECT_NEAR(best.saving + best.lost, least, 1e-12);
      for (const double factor : {0.5, 0.9, 1.1, 2.0}) EXPECT_GT(cost_of(factor * best.seconds, save, between), least);
    }
}

TEST(SaveInterval, is_that_of_youngs_formula_in_whole_steps) {
  // Saves of 0.5 s and a failure each 100 hours: sqrt(2 x 0.5 x 360000) = 600 s.
  const SaveInterval interval = save_interval(0.5, 360'000, 2.5);
  EXPECT_DOUBLE_EQ(interval.seconds, 600);
  EXPECT_EQ(interval.steps, 240);
  EXPECT_EQ(save_interval(1e-6, 1e-3, 10).steps, 1) << "never less than a step";
}

TEST(SaveInterval, takes_what_saves_of_the_run_have_cost) {
  const test::TempFolder folder;
  const auto file = folder.write("metrics.jsonl",
                                 "{\"step\":1,\"loss\":2}\n{\"step\":1,\"save_seconds\":3,\"save_stall_seconds\":0.5}\n"
                                 "{\"step\":2,\"save_seconds\":3,\"save_stall_seconds\":0.1}\n{\"step\":3,\"save_stall_"
                                 "seconds\":0.2}\n{\"cut");
  const auto cost = measured_save(file, 1000);
  ASSERT_TRUE(cost);
  EXPECT_EQ(cost->seconds, 0.2);
  EXPECT_THAT(cost->source, HasSubstr("the median of 3 saves in "));
  EXPECT_FALSE(measured_save(folder / "none.jsonl", 1000));
}

TEST(SaveInterval, measures_the_disk_and_leaves_nothing_there) {
  const test::TempFolder folder;
  const SaveCost cost = save_by_disk(folder / "not/yet/there", 100'000);
  EXPECT_GT(cost.rate, 0);
  EXPECT_DOUBLE_EQ(cost.seconds * cost.rate, 100'000);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_THAT(test::message_of<IoError>([] { save_by_disk("/proc/none", 1); }), HasSubstr("cannot write /proc"));
}

TEST(SaveInterval, is_told_with_the_setting_to_paste) {
  const SaveCost cost{.bytes = 1 << 20, .rate = 1e6, .seconds = 1.05, .source = "--save-rate"};
  const std::string text = describe(cost, save_interval(1.05, 3600, 1), 3600, 1);
  EXPECT_THAT(text, HasSubstr("a checkpoint of 1.00 MiB takes 1.05 s at 1 MB/s (--save-rate)"));
  EXPECT_THAT(text, HasSubstr("--set training.save_steps=87"));
  EXPECT_THAT(describe(cost, save_interval(1.05, 2, 1), 2, 1), HasSubstr("too much of the time between failures"));
  EXPECT_EQ(to_json(cost, save_interval(1.05, 3600, 1), 3600, 1).at("interval_steps"), 87);
}

}  // namespace
}  // namespace nought::save_interval_test
