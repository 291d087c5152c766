// nought plan says what a step takes on GPUs that are not here, and refuses a question that has no answer.
#include "support/run_program.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace nought::plan_test {
namespace {

using test::Ended;
using test::TempFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// A model alone, as a config.json.
constexpr std::string_view kModel = R"({"model_type": "llama", "vocab_size": 256, "hidden_size": 64,
  "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 64})";

Ended plan(const TempFolder& folder, const std::string& more) {
  const std::string model = folder.write("config.json", kModel).string();
  return test::run_program(fmt::format("{} plan {} {}", NOUGHT_PROGRAM, model, more));
}

TEST(Plan, a_gpu_that_is_named_has_a_time_and_what_limits_it) {
  const TempFolder folder;
  const Ended text = plan(folder, "--device cuda --gpu h200 --ranks 2");
  EXPECT_THAT(text.out, AllOf(HasSubstr("by rates of an h200"), HasSubstr("of each GPU"), HasSubstr("limited by")));
  const auto json = nlohmann::json::parse(plan(folder, "--device cuda --gpu h200 --json").out);
  EXPECT_EQ(json.at("gpu").at("name"), "h200");
  EXPECT_GT(json.at("time_of_step").at("throughput").at("tokens_per_second"), 0);
  const std::string file = folder.write("gpu.json", json.at("gpu").dump()).string();
  EXPECT_EQ(nlohmann::json::parse(plan(folder, "--device cuda --json --gpu " + file).out), json)
      << "what it shows is a file of rates";
  EXPECT_THAT(plan(folder, "--device cuda").out, HasSubstr("--gpu h100"));
}

TEST(Plan, a_gpu_without_its_device_or_without_rates_is_refused_in_one_line) {
  const TempFolder folder;
  const Ended on_cpu = plan(folder, "--gpu h100"), unknown = plan(folder, "--device cuda --gpu h10");
  EXPECT_THAT(on_cpu.err, HasSubstr("add --device cuda"));
  EXPECT_THAT(unknown.err, HasSubstr("expected a100, h100, h200, 4090 or a JSON file"));
  for (const Ended& each : {on_cpu, unknown}) {
    EXPECT_EQ(each.error_lines(), 1);
    EXPECT_NE(each.exit_code, 0);
  }
}

}  // namespace
}  // namespace nought::plan_test
