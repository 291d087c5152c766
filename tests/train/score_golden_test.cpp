// The scores, losses and gradients of a reward model, of tests/golden/align/reward, on every layout.
#include "support/golden.h"
#include "support/training_case.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/engine/model_schedule.h"
#include "nought/models/classifier.h"
#include "nought/train/probe_scores.h"
#include "nought/weights/model_source.h"

namespace nought::score_golden_test {
namespace {

using test::MeshLayout;
using test::TrainingRank;

FoundModel reward_model() { return {.folder = test::golden_folder("align/reward/model")}; }
std::string golden() { return test::golden_folder("align/reward") + "/golden.safetensors"; }

ProbeOutput probed_on(const MeshLayout& mesh, double center) {
  const test::TrainingCase of{
      .model = ModelSource(reward_model()).config(), .mesh = mesh, .load = [](ShardedModel& model, Decoder&) {
        model.load(ModelSource(reward_model()).weights());
      }};
  return of.on_rank(0, [&](TrainingRank& rank) {
    const ScoreInput input = read_score_input(rank.context, golden(), rank.decoder.config(), /*pairs=*/true);
    return probe_scores(
        rank.model, rank.decoder, input, {.method = AlignmentMethod::reward, .center = center}, true,
        {.micro_batches = mesh.sizes.pipeline > 1 ? 2 : 1, .schedule = schedule_at(rank.mesh, mesh.pipeline())});
  });
}

void expect_golden_on(const MeshLayout& mesh) {
  const Context context = Context::reference();
  const SafetensorsFile expected(golden());
  size_t gradients = 0, stored = 0;
  for (const auto& [name, tensor] : probed_on(mesh, 0)) {
    const bool is_gradient = name.starts_with("grad.");
    const std::string wanted = is_gradient ? "plain." + name : name == "loss" ? "loss.plain" : name;
    const Tensor want = expected.load(wanted, *context.memory);
    if (is_gradient) {
      ++gradients, test::expect_gradient_close(name, tensor, want, 5e-5);
    } else {
      EXPECT_LE(test::difference(tensor, want).max_abs, name == "logits" ? 5e-5 : 5e-6) << name;
    }
  }
  for (const TensorEntry& entry : expected.entries()) stored += entry.name.starts_with("plain.grad.") ? 1 : 0;
  EXPECT_EQ(gradients, stored);
  const ProbeOutput centered = probed_on(mesh, 0.01);
  EXPECT_LE(test::difference(centered.back().second, expected.load("loss.center", *context.memory)).max_abs, 5e-6);
}

TEST(ScoreGolden, every_layout_computes_a_reward_models_loss) {
  expect_golden_on({});
  for (const int stage : {0, 3}) expect_golden_on(test::sharded(2, stage));
  expect_golden_on({.sizes = {.context = 2}});
  expect_golden_on({.sizes = {.pipeline = 2}});
}

TEST(Classifier, is_read_and_written_as_transformers_has_it) {
  const ModelConfig config = ModelConfig::from_folder(reward_model().folder);
  ASSERT_TRUE(config.classifier.has_value());
  EXPECT_EQ(config.classifier->labels, 1);
  EXPECT_EQ(config.classifier->pad_token_id, 0);
  EXPECT_EQ(config.classifier->problem_type(), ProblemType::regression);
  const OrderedJson written = config.to_hf_json(DType::f32);
  EXPECT_EQ(written["architectures"][0], "LlamaForSequenceClassification");
  EXPECT_EQ(written["id2label"]["0"], "LABEL_0");
  EXPECT_EQ(written["pad_token_id"], 0);
  EXPECT_EQ(ModelConfig::from_json(Json::parse(written.dump())).classifier, config.classifier);
  EXPECT_THROW(config.require_language_model("model"), ConfigError);
  const ModelConfig language = ModelConfig::from_folder(test::golden_folder("open/gpt2"));
  const ModelConfig three = with_classifier(language, 3, {}, 7, "gpt2");
  EXPECT_EQ(three.to_hf_json(DType::f32)["architectures"][0], "GPT2ForSequenceClassification");
  EXPECT_EQ(three.to_hf_json(DType::f32)["tie_word_embeddings"], true);
  EXPECT_EQ(three.parameter_count(), language.parameter_count() + 3 * language.hidden_size) << "its table was tied";
  EXPECT_THROW(with_classifier(three, 4, {}, {}, "gpt2"), ConfigError);
}

}  // namespace
}  // namespace nought::score_golden_test
