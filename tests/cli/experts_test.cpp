// Runs of a mixture of experts: how its experts are used is told step by step, and their capacity is the run's choice.
#include <fstream>
#include <numeric>

#include "support/known_paths.h"
#include "support/program_runs.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace nought::experts_test {
namespace {

using nlohmann::json;
using test::Ended;
using test::metrics_of;
using test::run_program;
using test::TempFolder;
using ::testing::HasSubstr;

constexpr int64_t kLayers = 2, kExperts = 8, kTopK = 2, kTokensPerStep = 2 * 2 * 16;

void write_experts_run(const TempFolder& folder) {
  std::string text;
  for (int i = 0; i < 100; ++i) text += fmt::format("for (int i = {}; i < {}; ++i)\n", i % 7, i % 31);
  folder.write("text.txt", text);
  const json model{{"model_type", "mixtral"},
                   {"vocab_size", 256},
                   {"hidden_size", 32},
                   {"intermediate_size", 24},
                   {"num_hidden_layers", kLayers},
                   {"num_attention_heads", 4},
                   {"num_key_value_heads", 2},
                   {"num_local_experts", kExperts},
                   {"num_experts_per_tok", kTopK},
                   {"max_position_embeddings", 64}};
  folder.write("run.json",
               json{{"model", model},
                    {"data", {{"files", {(folder / "text.txt").string()}}, {"tokenizer", "bytes"}, {"seq_length", 16}}},
                    {"training",
                     {{"max_steps", 2},
                      {"per_device_train_batch_size", 1},
                      {"gradient_accumulation_steps", 2},
                      {"logging_steps", 1},
                      {"output_dir", (folder / "out").string()}}},
                    {"deepspeed", {{"zero_optimization", {{"stage", 3}}}}}}
                   .dump());
}

Ended train(const TempFolder& folder, const std::string& more) {
  return run_program(fmt::format("{} train {} --overwrite --ranks 2 {}", test::known_path("nought"),
                                 (folder / "run.json").string(), more));
}

int64_t dropped(const TempFolder& folder) {
  int64_t sum = 0;
  for (const json& line : metrics_of(folder)) sum += line["expert_dropped"].get<int64_t>();
  return sum;
}

TEST(Experts, metrics_hold_the_load_of_every_expert_over_all_ranks_and_micro_batches) {
  TempFolder folder;
  write_experts_run(folder);
  const Ended ended = train(folder, "");
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out + ended.err, HasSubstr("busiest expert "));
  ASSERT_EQ(metrics_of(folder).size(), 2u);
  for (const json& line : metrics_of(folder)) {
    const auto loads = line["expert_load"].get<std::vector<std::vector<int64_t>>>();
    ASSERT_EQ(loads.size(), static_cast<size_t>(kLayers));
    double busiest = 0;
    for (const std::vector<int64_t>& layer : loads) {
      ASSERT_EQ(layer.size(), static_cast<size_t>(kExperts));
      EXPECT_EQ(std::accumulate(layer.begin(), layer.end(), int64_t{0}), kTokensPerStep * kTopK);
      busiest = std::max(busiest, static_cast<double>(*std::max_element(layer.begin(), layer.end())));
    }
    EXPECT_DOUBLE_EQ(line["expert_imbalance"].get<double>(), busiest * kExperts / (kTokensPerStep * kTopK));
  }
  EXPECT_EQ(dropped(folder), 0) << "without a capacity";
}

TEST(Experts, tokens_beyond_the_capacity_are_dropped_only_if_the_run_says_so) {
  TempFolder folder;
  write_experts_run(folder);
  const Ended dropping = train(folder, "--set training.moe_capacity_factor=0.5");
  ASSERT_EQ(dropping.exit_code, 0) << dropping.err;
  EXPECT_GE(dropped(folder), kLayers * kTokensPerStep * kTopK) << "at least half of the choices of two steps";
  EXPECT_THAT(dropping.out + dropping.err, HasSubstr("dropped "));
  const double lossy = metrics_of(folder)[0]["loss"];

  ASSERT_EQ(train(folder, "--set training.moe_capacity_factor=0.5 --set training.moe_drop_tokens=false").exit_code, 0);
  EXPECT_EQ(dropped(folder), 0);
  const double served = metrics_of(folder)[0]["loss"];
  EXPECT_NE(lossy, served);
  ASSERT_EQ(train(folder, "").exit_code, 0);
  EXPECT_EQ(metrics_of(folder)[0]["loss"], served);
}

TEST(Experts, a_capacity_without_experts_or_without_room_is_one_line) {
  TempFolder folder;
  write_experts_run(folder);
  const Ended none = train(folder, "--set training.moe_capacity_factor=0");
  EXPECT_NE(none.exit_code, 0);
  EXPECT_THAT(none.err, HasSubstr("moe_capacity_factor: expected a finite number > 0, got 0"));
  const Ended dense = train(folder, "--set training.moe_capacity_factor=1 --set model.model_type=mistral");
  EXPECT_NE(dense.exit_code, 0);
  EXPECT_THAT(dense.err, HasSubstr("a mistral model has no experts"));
  EXPECT_EQ(dense.error_lines(), 1) << dense.err;
}

}  // namespace
}  // namespace nought::experts_test
