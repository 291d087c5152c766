#include "nought/engine/evaluation.h"

#include "support/file_dataset.h"
#include "support/message_of.h"
#include "support/tiny_llama.h"
#include "support/token_file.h"
#include "support/trainer_runs.h"
#include "support/training_case.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/config/run_config.h"

namespace nought::evaluation_test {
namespace {

using test::message_of;
using test::TempFolder;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kLength = 16;

std::string some_text(int lines) {
  std::string text;
  for (int i = 0; i < lines; ++i) text += fmt::format("line {} of a text.\n", i * 7 % 23);
  return text;
}

Evaluation evaluation_of(const TokenDataset& data, int ranks, int stage, int64_t micro_batch) {
  test::TrainingCase each{.model = test::tiny_llama(), .mesh = test::sharded(ranks, stage)};
  each.settings.training = false;
  return each.on_rank(-1, [&](test::TrainingRank& rank) {
    return evaluate(rank.engine, rank.model, data, *make_tokenizer("bytes"), micro_batch);
  });
}

TEST(Evaluation, counts_every_target_once_and_is_the_same_for_every_number_of_ranks) {
  for (const bool masked : {false, true}) {
    const TempFolder folder;
    // 20 whole samples and a part of one, which ranks and batches do not divide.
    const std::string text = some_text(40).substr(0, 20 * kLength + 5);
    const std::vector<std::filesystem::path> files{test::write_tokens(folder, "data.tokens", text, masked ? 10 : 0)};
    const TokenDataset data = test::dataset_of(files, *make_tokenizer("bytes"), kLength);
    const Evaluation one = evaluation_of(data, 1, 0, 1);
    if (!masked) {
      EXPECT_EQ(one.targets, static_cast<int64_t>(text.size()));  // all but the first, and the separator
      EXPECT_EQ(one.text_bytes, static_cast<int64_t>(text.size()) - 1);
      EXPECT_NEAR(one.bits_per_byte(), one.loss / std::log(2.0) * text.size() / (text.size() - 1), 1e-12);
    } else {
      EXPECT_LT(one.targets, static_cast<int64_t>(text.size()) / 2);
    }
    EXPECT_NEAR(one.loss, std::log(256.0), 0.2);
    for (const auto& [ranks, stage, micro_batch] : {std::tuple{1, 0, 7}, std::tuple{2, 3, 2}, std::tuple{3, 1, 4}}) {
      const Evaluation many = evaluation_of(data, ranks, stage, micro_batch);
      EXPECT_EQ(many.targets, one.targets);
      EXPECT_EQ(many.text_bytes, one.text_bytes);
      EXPECT_NEAR(many.loss, one.loss, 1e-6) << ranks << " ranks, micro-batch " << micro_batch;
    }
  }
}

nlohmann::json run_of(const TempFolder& folder, nlohmann::json data) {
  data["files"] = {folder.write("text.txt", some_text(40)).string()};
  data["seq_length"] = kLength;
  return {{"model", test::tiny_llama_json()},
          {"data", data},
          {"training",
           {{"max_steps", 7},
            {"learning_rate", 3e-3},
            {"per_device_train_batch_size", 4},
            {"logging_steps", 3},
            {"output_dir", (folder / "out").string()}}}};
}

test::ToldRun train(const nlohmann::json& run) {
  return test::run_plan(resolve(make_run_config(run, "RUN.json"), 1), {.mode = StartMode::overwrite});
}

std::vector<int64_t> validated(const test::ToldRun& told) {
  std::vector<int64_t> steps;
  for (const auto& [step, evaluation] : told.validations) steps.push_back(step);
  return steps;
}

TEST(Evaluation, a_run_validates_when_it_is_told_to_and_at_its_end_and_trains_the_same) {
  const TempFolder folder;
  nlohmann::json run = run_of(folder, {{"validation_fraction", 0.2}});
  const test::ToldRun silent = train(run);
  EXPECT_THAT(validated(silent), ElementsAre(7));
  run["training"]["eval_strategy"] = "steps";
  const test::ToldRun often = train(run);
  EXPECT_THAT(validated(often), ElementsAre(3, 6, 7));  // every logging_steps
  EXPECT_EQ(often.losses(), silent.losses());
  EXPECT_EQ(often.validations.back().second.loss, silent.validations.back().second.loss);
  run["training"]["eval_steps"] = 7;
  EXPECT_THAT(validated(train(run)), ElementsAre(7));
  run["training"]["eval_strategy"] = "epoch";
  run["training"]["per_device_train_batch_size"] = 20;
  run["training"]["per_device_eval_batch_size"] = 3;
  EXPECT_THAT(validated(train(run)), ElementsAre(2, 4, 6, 7));  // 37 samples
}

TEST(Evaluation, a_strategy_needs_data_to_validate_with) {
  const TempFolder folder;
  nlohmann::json run = run_of(folder, nlohmann::json::object());
  run["training"]["eval_strategy"] = "steps";
  EXPECT_THAT(message_of<ConfigError>([&] { resolve(make_run_config(run, "RUN.json"), 1); }),
              HasSubstr("needs data to validate with"));
  run["training"]["eval_strategy"] = "sometimes";
  EXPECT_THAT(message_of<ConfigError>([&] { make_run_config(run, "RUN.json"); }), HasSubstr("no, steps, epoch"));
}

}  // namespace
}  // namespace nought::evaluation_test
