// nought simulate and plan --cluster answer for clusters that are not here, and refuse what has no answer.
#include "support/known_paths.h"
#include "support/run_program.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace nought::simulate_test {
namespace {

using test::Ended;
using test::TempFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::string_view kModel = R"({"model_type": "llama", "vocab_size": 32000, "hidden_size": 2048,
  "intermediate_size": 5632, "num_hidden_layers": 4, "num_attention_heads": 16, "max_position_embeddings": 2048})";

Ended run(const TempFolder& folder, const std::string& command, const std::string& more) {
  const std::string model = folder.write("config.json", kModel).string();
  return test::run_program(fmt::format("{} {} {} {}", test::known_path("nought"), command, model, more));
}

TEST(Simulate, a_run_has_its_seconds_memory_days_and_cost) {
  const TempFolder folder;
  const auto json =
      nlohmann::json::parse(run(folder, "simulate", "--cluster h100x8 --ranks 64 --tokens 1T --price 2 --json").out);
  EXPECT_EQ(json.at("ranks"), 64);
  EXPECT_GT(json.at("parts").at("products"), 0);
  EXPECT_GT(json.at("days"), 0);
  EXPECT_NEAR(json.at("cost").get<double>(), json.at("days").get<double>() * 24 * 64 * 2, 1);
  EXPECT_TRUE(json.at("memory").at("fits"));
}

TEST(Simulate, plan_answers_for_a_cluster_by_the_same_formulas) {
  const TempFolder folder;
  const std::string on = "--cluster h100x8 --ranks 8 --json --set training.gradient_accumulation_steps=4 ";
  const auto simulated = nlohmann::json::parse(run(folder, "simulate", on).out);
  const auto planned = nlohmann::json::parse(run(folder, "plan", on).out);
  EXPECT_EQ(planned.at("simulation"), simulated);
  EXPECT_EQ(run(folder, "plan", on + "--layouts").out, run(folder, "simulate", on + "--layouts").out);
}

TEST(Simulate, what_has_no_answer_is_said_in_one_line) {
  const TempFolder folder;
  const auto expect = [&](const std::string& command, const std::string& more, const std::string& what) {
    const Ended ended = run(folder, command, more);
    EXPECT_THAT(ended.err, HasSubstr(what));
    EXPECT_EQ(ended.error_lines(), 1);
    EXPECT_NE(ended.exit_code, 0);
  };
  expect("simulate", "", "--cluster is missing: expected a100x8");
  expect("simulate", "--cluster h100x9", "--cluster h100x9: expected a100x8");
  expect("simulate", "--cluster h100x8 --ranks 0", "--ranks must be 1 to 1000000");
  expect("simulate", "--cluster h100x8 --tokens 0", "--tokens 0: expected a number above 0");
  expect("simulate", "--cluster h100x8 --software torch", "software \"torch\" is unknown");
  expect("simulate", "--cluster h100x8 --ranks 8 --set training.parallelism_config.tp_size=3", "tp_size");
  expect("plan", "--layouts", "--layouts is for a cluster: add --cluster");
}

}  // namespace
}  // namespace nought::simulate_test
