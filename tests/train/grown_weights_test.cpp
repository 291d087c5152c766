// A model with a larger vocabulary starts from a folder's weights: old rows as they are, new ones as the mean of those.
#include "nought/weights/grown_weights.h"

#include "support/golden.h"
#include "support/message_of.h"
#include "support/trainer_runs.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nought/config/run_config.h"
#include "nought/train/validate_run.h"
#include "nought/weights/model_source.h"

namespace nought::grown_weights_test {
namespace {

using test::golden_folder;
using test::message_of;
using test::TempFolder;
using testing::HasSubstr;

constexpr int64_t kMore = 5;

ModelConfig grown(const ModelSource& source) {
  ModelConfig config = source.config();
  config.vocab_size += kMore;
  return config;
}

std::vector<float> values_of(const StateSource& source, const Parameter& parameter, StateKind kind,
                             const std::vector<Interval>& elements) {
  const auto memory = Memory::create();
  int64_t count = 0;
  for (const Interval& interval : elements) count += interval.size();
  const Tensor values = Tensor::empty(*memory, {count}, DType::f32, Category::workspace);
  source.fill(kind, parameter, elements, values);
  return values.to_vector<float>();
}

TEST(GrownWeights, keep_old_rows_and_give_new_ones_the_mean_of_these) {
  const ModelSource source(golden_folder("open/gpt2_untied"));
  const Decoder decoder(grown(source));
  const InitialState fresh(1);
  const GrownWeights weights(source.weights(), source.model(), fresh);
  int changed = 0;
  for (size_t unit = 0; unit < decoder.units().size(); ++unit)
    for (size_t i = 0; i < decoder.units()[unit]->parameters().size(); ++i) {
      const Parameter &now = decoder.units()[unit]->parameters()[i],
                      &before = source.model().units()[unit]->parameters()[i];
      const std::vector<float> old =
          values_of(source.weights(), before, StateKind::master, {{0, before.shape.numel()}});
      std::vector<float> all = values_of(weights, now, StateKind::master, {{0, now.shape.numel()}});
      if (now.shape == before.shape) {
        EXPECT_EQ(all, old) << now.name;
        continue;
      }
      ++changed;
      const auto width = static_cast<size_t>(now.shape[1]), rows = old.size() / width;
      EXPECT_EQ(std::vector<float>(all.begin(), all.begin() + static_cast<long>(old.size())), old);
      for (size_t column = 0; column < width; ++column) {
        double sum = 0;
        for (size_t row = 0; row < rows; ++row) sum += static_cast<double>(old[row * width + column]);
        for (size_t row = rows; row < rows + kMore; ++row)
          EXPECT_EQ(all[row * width + column], static_cast<float>(sum / static_cast<double>(rows)));
      }
      // Any piece of it has the same values.
      const auto edge = static_cast<int64_t>(old.size());
      const std::vector<Interval> pieces{{3, 10}, {edge - 2, edge + 3}, {edge + 50, edge + 60}};
      std::vector<float> expected;
      for (const Interval& piece : pieces) expected.insert(expected.end(), &all[piece.begin], &all[piece.end]);
      EXPECT_EQ(values_of(weights, now, StateKind::master, pieces), expected);
      EXPECT_THAT(values_of(weights, now, StateKind::exp_avg, pieces), testing::Each(0.0f));
    }
  EXPECT_EQ(changed, 2) << "the embedding and the head";
}

nlohmann::json run_of(const TempFolder& folder, int stage) {
  std::string lines;
  for (int i = 0; i < 12; ++i)
    lines += fmt::format("{{\"prompt\": \"What follows {}?\", \"completion\": \"{} does.\"}}\n", i, i + 1);
  return {{"model", golden_folder("open/llama")},
          {"data",
           {{"files", {folder.write("talk.jsonl", lines).string()}},
            {"tokenizer", "bytes"},
            {"chat_template", "chatml"},
            {"add_special_tokens", {"<|im_start|>", "<|im_end|>"}},
            {"seq_length", 16}}},
          {"training",
           {{"max_steps", 3},
            {"per_device_train_batch_size", 2},
            {"learning_rate", 1e-3},
            {"resize_vocab", true},
            {"save_steps", 0},
            {"output_dir", (folder / "out").string()}}},
          {"deepspeed", {{"zero_optimization", {{"stage", stage}}}}}};
}

std::vector<double> train(const nlohmann::json& run) {
  const RunPlan plan = resolve(make_run_config(run, "RUN.json"), 2);
  validate_run(plan, StartMode::overwrite);
  return test::run_plan(plan, {.ranks = 2, .mode = StartMode::overwrite}).losses();
}

TEST(GrownWeights, a_run_adds_its_markers_at_any_stage_alike_and_exports_them) {
  const TempFolder folder;
  const std::vector<double> whole = train(run_of(folder, 0));
  EXPECT_EQ(whole.size(), 3u);
  EXPECT_EQ(whole, train(run_of(folder, 3)));
  const ModelSource trained(folder / "out");
  EXPECT_EQ(trained.config().vocab_size, 258);
  EXPECT_THAT(trained.config().eos_token_ids, testing::ElementsAre(257, 0, 2)) << "those of the folder come last";
  const auto tokenizer = make_tokenizer(trained.tokenizer());
  EXPECT_EQ(tokenizer->find("<|im_end|>"), 257);
  EXPECT_THAT(chat_source_for("", folder / "out", *tokenizer).jinja, HasSubstr("<|im_start|>assistant"));
}

TEST(GrownWeights, without_room_for_the_tokenizer_the_run_says_how_to_make_it) {
  const TempFolder folder;
  nlohmann::json run = run_of(folder, 0);
  run["training"]["resize_vocab"] = false;
  EXPECT_THAT(
      message_of<ConfigError>([&] { train(run); }),
      HasSubstr("vocab_size is 256, the tokenizer \"bytes\" needs at least 258: a run with training.resize_vocab"));
}

}  // namespace
}  // namespace nought::grown_weights_test
