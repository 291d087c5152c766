// nought tune measures short runs of one global batch, keeps every trial, and never answers with a slower run.
#include "support/known_paths.h"
#include "support/program_runs.h"
#include "support/run_program.h"
#include "support/size.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::tune_test {
namespace {

NOUGHT_FILE_SIZE(medium);

using test::Ended;
using test::TempFolder;
using ::testing::HasSubstr;

Ended tune(const TempFolder& folder, const std::string& more) {
  return test::run_program(fmt::format("{} tune {} --steps 4 --results {} {}", test::known_path("nought"),
                                       (folder / "run.json").string(), (folder / "results").string(), more));
}

std::vector<nlohmann::json> trials_in(const TempFolder& folder) {
  std::vector<nlohmann::json> trials;
  std::ifstream file(folder / "results/trials.jsonl");
  for (std::string line; std::getline(file, line);) trials.push_back(nlohmann::json::parse(line));
  return trials;
}

TEST(Tune, the_run_as_it_is_is_the_first_trial_and_the_batch_stays) {
  const TempFolder folder;
  test::write_run(folder);
  const Ended ended = tune(folder, "--time 1m");
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  const std::vector<nlohmann::json> trials = trials_in(folder);
  ASSERT_GE(trials.size(), 4);
  EXPECT_TRUE(trials.front().at("settings").empty());
  for (const nlohmann::json& each : trials) EXPECT_GT(each.at("tokens_per_second"), 0) << each;
  EXPECT_THAT(trials[1].at("settings").dump(), HasSubstr("training.gradient_accumulation_steps=2"));
  EXPECT_THAT(trials[1].at("settings").dump(), HasSubstr("training.per_device_train_batch_size=1"));
  EXPECT_FALSE(std::filesystem::exists(folder / "out")) << "the run's own folder is not touched";
  const Ended again = tune(folder, "--time 1m");
  EXPECT_THAT(again.err, HasSubstr("has trials: --resume goes on with them"));
  EXPECT_EQ(again.error_lines(), 1);
}

TEST(Tune, a_trial_that_takes_too_long_is_a_row_and_is_not_made_again) {
  const TempFolder folder;
  test::write_run(folder);
  const Ended ended = tune(folder, "--time 0.01s");
  EXPECT_EQ(ended.exit_code, 1);
  const std::vector<nlohmann::json> trials = trials_in(folder);
  ASSERT_EQ(trials.size(), 1);
  EXPECT_THAT(trials[0].at("message").get<std::string>(), HasSubstr("not done in"));
  EXPECT_THAT(ended.out, HasSubstr("no trial ran to its end"));
  EXPECT_EQ(tune(folder, "--time 0.01s --resume").exit_code, 1);
  const std::vector<nlohmann::json> all = trials_in(folder);
  EXPECT_EQ(std::count_if(all.begin(), all.end(), [](const auto& each) { return each.at("settings").empty(); }), 1);
}

}  // namespace
}  // namespace nought::tune_test
