// Step times that were published are met: the bars stand in docs/simulator.md, beside the errors.
#include "nought/simulate/rows.h"

#include <cmath>

#include "support/golden_root.h"
#include "support/message_of.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"

namespace nought::rows_test {
namespace {

using testing::HasSubstr;

const Json& published() {
  static const Json all = read_json_file(test::golden_root() + "/scale/published.json");
  return all;
}

struct Errors {
  double sum = 0, count = 0, worst = 0;
  void add(double error) { sum += std::abs(error), count += 1, worst = std::max(worst, std::abs(error)); }
  double mean() const { return sum / count; }
};

std::map<std::string, Errors> errors_by_group() {
  std::map<std::string, Errors> groups;
  const std::vector<SimulatedRow> rows = simulate_rows(published(), "published.json", fitted_constants());
  for (size_t i = 0; i < rows.size(); ++i) {
    const Json& row = published()["rows"][i];
    if (!row.contains("step_seconds")) continue;
    const std::string hardware = row["hardware"];
    const std::string group = published()["models"][row["model"].get<std::string>()].contains("moe")
                                  ? "experts"
                                  : generation_of(hardware.substr(0, hardware.find('-')), "a row");
    groups[group].add(rows[i].step.seconds / row["step_seconds"].get<double>() - 1);
  }
  return groups;
}

TEST(Rows, published_step_times_are_met) {
  std::map<std::string, Errors> groups = errors_by_group();
  EXPECT_EQ(groups.size(), 4);
  EXPECT_LE(groups["a100"].mean(), 0.10);
  EXPECT_LE(groups["h100"].mean(), 0.10);
  EXPECT_LE(groups["blackwell"].mean(), 0.15);
  EXPECT_LE(groups["experts"].mean(), 0.20);
  for (const char* dense : {"a100", "h100", "blackwell"}) EXPECT_LE(groups[dense].worst, 0.30) << dense;
}

TEST(Rows, the_layout_of_bloom_said_to_be_fastest_is_within_5_percent_of_the_fastest) {
  const std::vector<SimulatedRow> rows = simulate_rows(published(), "published.json", fitted_constants());
  double chosen = 0, least_predicted = INFINITY, least = INFINITY;
  for (size_t i = 0; i < rows.size(); ++i) {
    const Json& row = published()["rows"][i];
    if (row["model"] != "bloom-h14336-L72-a64") continue;
    const double batch = row["global_batch"], seconds = row["step_seconds"].get<double>() / batch;
    if (rows[i].step.seconds / batch < least_predicted)
      least_predicted = rows[i].step.seconds / batch, chosen = seconds;
    least = std::min(least, seconds);
  }
  EXPECT_LE(chosen, 1.05 * least);
}

TEST(Rows, the_parts_make_the_step) {
  for (const SimulatedRow& row : simulate_rows(published(), "published.json", fitted_constants())) {
    double sum = 0;
    for (const StepPart& part : row.step.parts()) sum += part.seconds();
    EXPECT_NEAR(sum, row.step.seconds, 1e-9 * sum) << row.id;
  }
}

/// The first row alone, changed.
std::string error_with(const std::function<void(Json&)>& change) {
  Json file = published();
  file["rows"] = Json::array({file["rows"][0]});
  change(file);
  return test::message_of<ConfigError>([&] { simulate_rows(file, "rows.json", fitted_constants()); });
}

TEST(Rows, what_is_wrong_is_said_in_one_line) {
  EXPECT_THAT(error_with([](Json& file) { file["rows"][0].erase("model"); }), HasSubstr("1.7B: model is missing"));
  EXPECT_THAT(error_with([](Json& file) { file["rows"][0]["model"] = "gpt-9"; }), HasSubstr("models has no \"gpt-9\""));
  EXPECT_THAT(error_with([](Json& file) { file["rows"][0]["gpus"] = 33; }),
              HasSubstr("are 32 ranks, and gpus says 33"));
  EXPECT_THAT(error_with([](Json& file) { file["rows"][0]["micro_batch"] = 3; }),
              HasSubstr("global_batch 512 is no multiple of dp 32 x micro_batch 3"));
  EXPECT_THAT(error_with([](Json& file) { file["hardware"]["a100-80"]["nic_gb_per_s"] = 0; }),
              HasSubstr("nic_gb_per_s must be a number above 0, got the number 0"));
  EXPECT_THAT(error_with([](Json& file) { file.erase("models"); }), HasSubstr("rows.json: models is missing"));
}

}  // namespace
}  // namespace nought::rows_test
