#include "nought/report/compare.h"

#include <cmath>

#include "run_files.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"
#include "nought/report/run_facts.h"

namespace nought::compare_test {
namespace {

using nlohmann::json;
using test::message_of;
using test::run_record;
using test::step_line;
using test::step_lines;
using test::TempFolder;
using test::write_run_files;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

json settings(int seed, const char* output_dir) { return {{"training", {{"seed", seed}, {"output_dir", output_dir}}}}; }

TEST(Compare, runs_that_differ_in_their_place_alone_do_not_differ) {
  const TempFolder folder;
  const auto runs = read_run_folders({write_run_files(folder, "a", step_lines(4), run_record(settings(1, "a"))),
                                      write_run_files(folder, "b", step_lines(6), run_record(settings(1, "b")))});
  const Comparison comparison = compare_runs(runs);
  EXPECT_FALSE(comparison.differs());
  EXPECT_EQ(comparison.losses[0].steps, 4);
  EXPECT_THAT(to_text(comparison, 0), HasSubstr("b: equal to the bit in all 4 common steps"));
}

TEST(Compare, names_the_first_step_whose_losses_differ_to_the_bit_and_beyond_the_tolerance) {
  const TempFolder folder;
  std::string lines;
  for (int64_t step = 1; step <= 5; ++step) {
    const double loss = 2.0 / static_cast<double>(step);
    lines += step_line(step, step == 2 ? std::nextafter(loss, 9) : step >= 4 ? 1.5 * loss : loss).dump() + "\n";
  }
  const auto runs = read_run_folders({write_run_files(folder, "a", step_lines(5), run_record(settings(1, "a"))),
                                      write_run_files(folder, "b", lines, run_record(settings(1, "b")))});
  const Comparison comparison = compare_runs(runs);
  EXPECT_TRUE(comparison.differs());
  EXPECT_TRUE(comparison.settings.empty());
  EXPECT_EQ(comparison.losses[0].bits->step, 2);
  EXPECT_EQ(comparison.losses[0].beyond->step, 4);
  EXPECT_EQ(comparison.losses[0].beyond->other, 0.75);
  const OrderedJson report = to_json(comparison);
  EXPECT_EQ(report["losses"][0]["steps"]["first_difference"]["step"], 2);
  EXPECT_EQ(report["losses"][0]["steps"]["first_beyond_tolerance"]["losses"], (OrderedJson{0.5, 0.75}));
}

TEST(Compare, a_loss_that_is_no_number_equals_another_and_differs_from_every_number) {
  StepTable numbers, none;
  numbers.add(1, {{"loss", 1.0}});
  none.add(1, {{"loss", nullptr}});
  EXPECT_TRUE(compare_losses(none, none, "loss").equal());
  EXPECT_EQ(compare_losses(numbers, none, "loss").beyond->step, 1);
}

TEST(Compare, a_setting_that_differs_has_a_row_and_what_follows_from_it_has_none) {
  const TempFolder folder;
  json first = run_record(settings(1, "a")), other = run_record(settings(2, "b"));
  other["resolved"][0]["value"] = "2";     // by training.seed, which has a row of its own
  other["resolved"][1]["value"] = "bf16";  // by the machine
  other["settings"]["deepspeed"] = {{"zero_optimization", {{"stage", 3}}}};
  const auto runs = read_run_folders(
      {write_run_files(folder, "a", step_lines(1), first), write_run_files(folder, "b", step_lines(1), other)});
  std::vector<std::string> rows;
  for (const ComparedRow& row : differing_settings(runs))
    rows.push_back(fmt::format("{}: {} / {}", row.name, row.values[0], row.values[1]));
  EXPECT_THAT(rows,
              ElementsAre("deepspeed.zero_optimization.stage:  / 3", "training.seed: 1 / 2", "dtype: f32 / bf16"));
  EXPECT_TRUE(compare_runs(runs).differs());
}

TEST(Compare, shows_speed_and_memory_beside_each_other) {
  const TempFolder folder;
  const auto runs =
      read_run_folders({write_run_files(folder, "a", step_lines(3), run_record(settings(1, "a"))),
                        write_run_files(folder, "b", step_lines(3), json{{"format", "nought-run-record-1"}})});
  json rows = json::object();
  for (const ComparedRow& row : measured_rows(runs)) rows[row.name] = row.values;
  EXPECT_EQ(rows["tokens/s (median)"], (json{"1.00K", "1.00K"}));
  EXPECT_EQ(rows["peak memory of a rank"], (json{"1.00 KiB", ""}));
  EXPECT_EQ(rows["step (median)"], (json{"512 ms", ""}));
  EXPECT_EQ(rows["steps"], (json{"3/20", "3"}));
  EXPECT_EQ(seconds_of_run(runs[0]), 2);
}

TEST(Compare, runs_without_a_common_step_are_refused_with_what_each_has) {
  const TempFolder folder;
  const auto runs = read_run_folders({write_run_files(folder, "a", step_lines(3), run_record({})),
                                      write_run_files(folder, "b", step_line(4, 1).dump() + "\n", run_record({}))});
  EXPECT_THAT(message_of<Error>([&] { compare_runs(runs); }),
              HasSubstr("no step in common: a has 1 to 3, b has 4 to 4"));
  EXPECT_THAT(message_of<Error>([&] { compare_runs(std::span(runs).first(1)); }), HasSubstr("give two or more"));
}

}  // namespace
}  // namespace nought::compare_test
