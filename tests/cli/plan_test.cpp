// nought plan says what a step takes on GPUs that are not here, and refuses a question that has no answer.
#include "support/known_paths.h"
#include "support/program_runs.h"
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
  return test::run_program(fmt::format("{} plan {} {}", test::known_path("nought"), model, more));
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

TEST(Plan, how_often_to_save_is_said_for_a_time_between_failures) {
  const TempFolder folder;
  const std::string gpu = "--device cuda --gpu h200 --ranks 2 --mtbf 24 --save-rate 1MB";
  EXPECT_THAT(plan(folder, gpu).out, HasSubstr("--set training.save_steps="));
  const auto json = nlohmann::json::parse(plan(folder, gpu + " --json").out), saving = json.at("saving");
  const int64_t bytes = 3 * sizeof(float) * json.at("parameters").get<int64_t>();
  EXPECT_EQ(saving.at("checkpoint_bytes"), bytes) << "the weights in f32 and AdamW's moments";
  EXPECT_DOUBLE_EQ(saving.at("save_seconds"), static_cast<double>(bytes) / 1e6);
  for (const auto& [options, words] : {std::pair{"--mtbf 0 --ranks 1", "more than 0 hours"},
                                       {"--mtbf 1 --save-rate x", "--save-rate"},
                                       {"--save-rate 1GiB", "--mtbf"},
                                       {"--mtbf 1 --device cuda", "add --gpu"}}) {
    const Ended ended = plan(folder, options);
    EXPECT_EQ(ended.error_lines(), 1) << options << ended.err;
    EXPECT_THAT(ended.err, HasSubstr(words));
    EXPECT_NE(ended.exit_code, 0) << options;
  }
}

Ended elastic(const TempFolder& folder, const std::string& more) {
  test::write_run(folder);
  return test::run_program(
      fmt::format("{} plan {} --elastic {}", test::known_path("nought"), (folder / "run.json").string(), more));
}

TEST(Plan, elastic_lists_every_number_of_ranks_with_its_memory) {
  const TempFolder folder;
  const std::string section =
      "--set training.per_device_train_batch_size=null --set 'deepspeed.elasticity={\"enabled\": true, "
      "\"max_train_batch_size\": 8, \"micro_batch_sizes\": [1, 2], \"max_gpus\": 4, \"version\": 0.1}'";
  const auto json = nlohmann::json::parse(elastic(folder, "--json " + section).out);
  EXPECT_EQ(json.at("train_batch"), 8);
  std::vector<int> ranks;
  for (const auto& row : json.at("counts")) {
    ranks.push_back(row.at("ranks"));
    EXPECT_EQ(row.at("ranks").get<int>() * row.at("micro_batch").get<int>() * row.at("accumulation").get<int>(), 8);
    EXPECT_TRUE(row.at("fits").get<bool>());
    EXPECT_GT(row.at("memory_bytes"), 0);
  }
  EXPECT_EQ(ranks, (std::vector{1, 2, 4}));
  const Ended small = elastic(folder, section + " --set training.device_memory=450KiB");
  EXPECT_THAT(small.out, AllOf(HasSubstr("global batch 8"), HasSubstr("by elasticity"), HasSubstr("no\n")));
}

TEST(Plan, elastic_without_a_section_lists_what_divides_the_batch) {
  const TempFolder folder;
  const auto json = nlohmann::json::parse(elastic(folder, "--json --ranks 3").out);
  EXPECT_EQ(json.at("train_batch"), 6);
  EXPECT_EQ(json.at("counts").size(), 4);
  EXPECT_EQ(json.at("counts")[0].at("set")[1], "training.gradient_accumulation_steps=3");
  const auto refused = nlohmann::json::parse(elastic(folder, "--json --ranks 2 --set training.virtual_ranks=2").out);
  EXPECT_THAT(refused.at("counts")[2].at("refused"), HasSubstr("do not divide it"));
}

}  // namespace
}  // namespace nought::plan_test
