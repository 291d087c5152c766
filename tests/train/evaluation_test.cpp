#include "nought/train/evaluation.h"

#include "support/message_of.h"
#include "support/trainer_runs.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/comm/thread.h"
#include "nought/config/run_config.h"
#include "nought/data/token_file.h"

namespace nought::evaluation_test {
namespace {

using test::message_of;
using test::TempFolder;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kLength = 16;

nlohmann::json tiny_llama() {
  return {{"model_type", "llama"},   {"vocab_size", 256},      {"hidden_size", 32},
          {"intermediate_size", 48}, {"num_hidden_layers", 2}, {"num_attention_heads", 4}};
}

std::string some_text(int lines) {
  std::string text;
  for (int i = 0; i < lines; ++i) text += fmt::format("line {} of a text.\n", i * 7 % 23);
  return text;
}

/// A document of text whose tokens are targets where `target` says so.
std::filesystem::path write_tokens(const TempFolder& folder, const std::string& text, bool masked) {
  const auto bytes = make_tokenizer("bytes");
  TokenFileWriter writer(bytes->vocab_size(), bytes->fingerprint());
  std::vector<int32_t> ids;
  bytes->encode_document(text, ids);
  std::vector<uint8_t> targets(ids.size());
  for (size_t i = 0; i < targets.size(); ++i) targets[i] = !masked || i / 10 % 3 == 0;
  writer.add(ids, targets);
  writer.write(folder / "data.tokens");
  return folder / "data.tokens";
}

Evaluation evaluation_of(const TokenDataset& data, int ranks, int stage, int64_t micro_batch) {
  Evaluation result;
  run_ranks(ranks, [&](Communicator& world, const Context& context) {
    Decoder decoder(ModelConfig::from_json(tiny_llama()));
    ShardedModel model(context, world, decoder, {.policy = Policy::stage(stage), .training = false});
    model.load(InitialState(3));
    Engine engine(model);
    const Evaluation mine = evaluate(engine, model, data, *make_tokenizer("bytes"), micro_batch);
    if (world.rank() == world.size() - 1) result = mine;
  });
  return result;
}

TEST(Evaluation, counts_every_target_once_and_is_the_same_for_every_number_of_ranks) {
  for (const bool masked : {false, true}) {
    const TempFolder folder;
    // 20 whole samples and a part of one, which ranks and batches do not divide.
    const std::string text = some_text(40).substr(0, 20 * kLength + 5);
    const std::vector<std::filesystem::path> files{write_tokens(folder, text, masked)};
    const TokenDataset data = TokenDataset::from_files(files, *make_tokenizer("bytes"), kLength);
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
  return {{"model", tiny_llama()},
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
