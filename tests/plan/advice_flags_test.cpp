// Advice can be pasted: behind the flags that a run has, its own make a run that fits.
#include "nought/plan/advice_flags.h"

#include <sstream>

#include "support/message_of.h"
#include "support/size.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nought/config/run_config.h"
#include "nought/plan/advice.h"
#include "nought/plan/fitting_update.h"
#include "nought/plan/ready_run.h"
#include "nought/train/trainer.h"
#include "nought/weights/model_source.h"

namespace nought {
namespace advice_flags_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kModel =
    R"("model": {"model_type": "llama", "vocab_size": 256, "hidden_size": 128, "intermediate_size": 352,
       "num_hidden_layers": 1, "num_attention_heads": 4, "max_position_embeddings": 128},
       "data": {"files": ["a.txt"], "tokenizer": "bytes", "seq_length": 64})";

/// A run by its sections training and deepspeed, and how many ranks it has.
struct Case {
  const char *training, *deepspeed;
  int ranks;
};

/// The words behind --set in the first advice of a message.
std::vector<std::string> pasted_from(const std::string& message) {
  const size_t begin = message.find("\n    --set "), end = message.find('\n', begin + 1);
  if (begin == std::string::npos) return {};
  std::istringstream words(message.substr(begin, end - begin));
  std::vector<std::string> settings;
  for (std::string word; words >> word;)
    if (word != "--set") settings.push_back(word);
  return settings;
}

NOUGHT_SIZE(medium);
TEST(AdviceFlags, one_paste_leads_from_what_does_not_fit_to_what_does) {
  // What a run says in training, in deepspeed or in both is changed where it counts.
  const std::vector<Case> cases{
      {R"("per_device_train_batch_size": 8)", R"({})", 1},
      {R"("per_device_train_batch_size": 8, "gradient_checkpointing": false)", R"({})", 1},
      {R"("per_device_train_batch_size": 8, "recompute": "none")", R"({"zero_optimization": {"stage": 1}})", 2},
      {R"("seed": 1)", R"({"train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 2})", 1},
      {R"("seed": 1)", R"({"train_batch_size": 16, "train_micro_batch_size_per_gpu": 8})", 2},
      {R"("per_device_train_batch_size": 8, "gradient_accumulation_steps": 1)",
       R"({"train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 1})", 2},
      {R"("per_device_train_batch_size": 8, "gradient_accumulation_steps": 2)",
       R"({"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
           "train_batch_size": "auto", "zero_optimization": {"stage": 2}})",
       4},
      {R"("per_device_train_batch_size": 1, "gradient_checkpointing": false)", R"({})", 1},
      {R"("per_device_train_batch_size": 2, "bf16": true)", R"({"zero_optimization": {"stage": 2}})", 2},
      {R"("per_device_train_batch_size": 8, "optim": "sgd")", R"({"zero_optimization": {"stage": 3}})", 2}};
  int tried = 0;
  for (const Case& each : cases)
    for (const double part : {0.8, 0.5}) {
      const auto run_with = [&](const std::vector<std::string>& settings) {
        const std::string text =
            fmt::format(R"({{{}, "training": {{{}}}, "deepspeed": {}}})", kModel, each.training, each.deepspeed);
        return with_model_folder(
            resolve(make_run_config(parse_json(text, "RUN.json"), "RUN.json", settings), each.ranks));
      };
      const RunPlan whole = run_with({});
      const ModelConfig config = model_config_of(whole);
      const auto peak = static_cast<double>(predict(config, layout_of(whole)).memory.peak_total);
      const std::string budget = fmt::format("training.device_memory={:.0f}", part * peak);
      const auto within = [&](std::vector<std::string> settings) {
        settings.insert(settings.begin(), budget);
        return run_with(settings);
      };
      const std::string message = test::message_of<MemoryLimitError>([&] {
        require_memory(within({}), config, {within, "swap folder"});
      });
      EXPECT_THAT(message, HasSubstr("are more than training.device_memory"));
      const std::vector<std::string> settings = pasted_from(message);
      if (settings.empty()) {
        EXPECT_THAT(message, HasSubstr("no stage, recompute, tiles or batch size fits")) << each.training;
        continue;
      }
      if (message.find("'deepspeed") != std::string::npos) continue;  // quoted for the folder's blank
      ++tried;
      const RunPlan fits = with_fitting_update(within(settings));  // as ready_run() has it
      EXPECT_EQ(fits.layout.train_batch(), whole.layout.train_batch()) << message;
      EXPECT_NO_THROW(require_memory(fits, config, {})) << message;
    }
  EXPECT_GE(tried, 12);
}

TEST(AdviceFlags, a_shell_takes_each_setting_for_one_word) {
  EXPECT_EQ(flags_of({"a.b=1", "c=x y", "d=it's"}), "--set a.b=1 --set 'c=x y' --set 'd=it'\\''s'");
}

TEST(AdviceFlags, a_way_that_contradicts_the_run_is_not_taken) {
  Layout from, to;
  to.micro_batch = 2, to.accumulation = 4;
  const auto run_with = [](const std::vector<std::string>& settings) {
    require<ConfigError>(settings.front().starts_with("deepspeed."), "contradicts");
    RunPlan plan;
    plan.layout.micro_batch = 2, plan.layout.accumulation = 4;
    return plan;
  };
  const auto settings = settings_of(from, to, "", run_with, [](const RunPlan&) { return true; });
  ASSERT_TRUE(settings.has_value());
  EXPECT_THAT(*settings,
              ElementsAre("deepspeed.train_micro_batch_size_per_gpu=2", "deepspeed.gradient_accumulation_steps=4"));
  EXPECT_FALSE(settings_of(from, to, "", run_with, [](const RunPlan&) { return false; }).has_value());
}

}  // namespace
}  // namespace advice_flags_test
}  // namespace nought
