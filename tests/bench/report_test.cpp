#include "nought/bench/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/measure/samples.h"

namespace nought::report_test {
namespace {

using testing::HasSubstr;

TEST(Samples, the_median_is_the_middle_or_between_the_two_in_the_middle) {
  EXPECT_EQ((Samples{{3, 1, 2}}.median()), 2);
  EXPECT_EQ((Samples{{4, 1, 2, 3}}.median()), 2.5);
  EXPECT_EQ((Samples{{3, 1, 2}}.min()), 1);
  EXPECT_EQ((Samples{{3, 1, 2}}.max()), 3);
  EXPECT_ANY_THROW(Samples{}.median());
}

TEST(Figure, the_fraction_pairs_each_sample_with_the_limit_beside_it) {
  // The machine halves its speed in the second sample: the fraction does not change.
  const Figure figure{.name = "product",
                      .work = 100,
                      .unit = "FLOP",
                      .limit_name = "peak",
                      .seconds = {{1, 2}},
                      .limits = {{200, 100}}};
  EXPECT_DOUBLE_EQ(figure.fraction(), 0.5);
  EXPECT_DOUBLE_EQ(figure.rate(), 100 / 1.5);
}

TEST(Figure, a_limit_in_other_units_takes_its_own_work) {
  const Figure figure{.name = "step",
                      .work = 10,
                      .unit = "tokens",
                      .limit_name = "peak",
                      .seconds = {{2}},
                      .limits = {{100}},
                      .limited_work = 50};
  EXPECT_DOUBLE_EQ(figure.fraction(), 0.25);
  EXPECT_DOUBLE_EQ(figure.rate(), 5);
  EXPECT_THAT(to_table({figure}), HasSubstr("5 tokens/s  peak 100 FLOP/s"));
  const Figure bytes{.name = "decode",
                     .work = 10,
                     .unit = "tokens",
                     .limit_name = "triad",
                     .seconds = {{2}},
                     .limits = {{100}},
                     .limited_work = 50,
                     .limited_unit = "B"};
  EXPECT_THAT(to_table({bytes}), HasSubstr("5 tokens/s  triad 100 B/s"));
}

TEST(Measure, what_is_short_is_repeated_and_the_time_is_that_of_one) {
  Figure figure{.name = "count", .work = 1, .unit = "B", .limit_name = "limit"};
  int calls = 0, limits = 0;
  const auto nap = [] {
    const auto start = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - start < std::chrono::microseconds(200)) {
    }
  };
  measure(
      figure, 3, 0.002, [&] { return ++limits, 1e9; }, [&] { ++calls, nap(); });
  EXPECT_EQ(limits, 3);
  EXPECT_EQ(figure.seconds.values.size(), 3u);
  EXPECT_GE(calls, 2 + 3);
  EXPECT_GE(figure.seconds.min(), 200e-6);
}

TEST(Report, a_table_has_a_line_per_figure_and_json_has_all_numbers) {
  const Figure figure{.name = "AdamW",
                      .work = 1 << 30,
                      .unit = "B",
                      .limit_name = "triad",
                      .seconds = {{0.5}},
                      .limits = {{4.0 * (1 << 30)}}};
  EXPECT_THAT(to_table({figure}), HasSubstr("AdamW  500 ms  500 ms  500 ms  2.00 GiB/s  triad 4.00 GiB/s      50%\n"));
  const auto json = to_json({figure});
  EXPECT_EQ(json[0]["name"], "AdamW");
  EXPECT_DOUBLE_EQ(json[0]["limit"]["fraction"].get<double>(), 0.5);
  EXPECT_DOUBLE_EQ(json[0]["seconds"]["median"].get<double>(), 0.5);
}

TEST(Report, a_report_names_its_format_and_what_it_was_measured_on) {
  const auto report = bench_report(2, 3, {{.name = "a", .work = 1, .unit = "B", .limit_name = "", .seconds = {{1}}}});
  EXPECT_EQ(report["format"], "nought-bench-1");
  EXPECT_EQ(report["ranks"], 2);
  EXPECT_EQ(report["threads_per_rank"], 3);
  EXPECT_EQ(report["figures"][0]["name"], "a");
}

TEST(Report, facts_are_columns_of_the_figures_that_have_them) {
  const Figure with{
      .name = "a", .work = 1, .unit = "B", .limit_name = "", .seconds = {{1}}, .facts = {{"extra", 2048, "B"}}};
  const Figure without{.name = "b", .work = 0, .unit = "", .limit_name = "", .seconds = {{1}}};
  const std::string table = to_table({with, without});
  EXPECT_THAT(table, HasSubstr("extra\n"));
  EXPECT_THAT(table, HasSubstr("2.00 KiB\n"));
  const auto json = to_json({with, without});
  EXPECT_EQ(json[0]["facts"]["extra"], 2048);
  EXPECT_FALSE(json[1].contains("facts"));
}

}  // namespace
}  // namespace nought::report_test
