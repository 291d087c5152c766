// Encoders with a head that scores texts (tests/golden/classifiers): scores, losses, gradients and training as
// transformers and torch have them, on every layout.
#include <map>

#include "support/golden.h"
#include "support/size.h"
#include "support/temp_folder.h"
#include "support/training_case.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/data/answer_batch.h"
#include "nought/engine/model_schedule.h"
#include "nought/models/classifier.h"
#include "nought/nn/sequence_objective.h"
#include "nought/train/probe_scores.h"
#include "nought/weights/model_source.h"

namespace nought::encoder_classifier_test {
namespace {

NOUGHT_FILE_SIZE(small);

using test::MeshLayout;
using test::TrainingRank;

std::string folder_of(const std::string& name) { return test::golden_folder("classifiers/" + name); }
std::string golden_of(const std::string& name) { return folder_of(name) + "/golden.safetensors"; }

class EncoderClassifier : public testing::TestWithParam<const char*> {
 protected:
  test::TrainingCase on(const MeshLayout& mesh) const {
    const std::string folder = folder_of(GetParam());
    return {.model = ModelSource(FoundModel{.folder = folder}).config(),
            .mesh = mesh,
            .load = [folder](ShardedModel& model, Decoder&) {
              model.load(ModelSource(FoundModel{.folder = folder}).weights());
            }};
  }
  ScoreInput input(TrainingRank& rank) const {
    return read_score_input(rank.context, golden_of(GetParam()), rank.decoder.config(), /*pairs=*/false);
  }
};

TEST_P(EncoderClassifier, scores_loss_and_gradients_are_those_of_transformers) {
  const SafetensorsFile expected(golden_of(GetParam()));
  const Context context = Context::reference();
  size_t stored = 0;
  for (const TensorEntry& entry : expected.entries()) stored += entry.name.starts_with("grad.") ? 1 : 0;
  for (const MeshLayout& mesh :
       {MeshLayout{}, test::sharded(2, 3), MeshLayout{.sizes = {.tensor = 2}},
        MeshLayout{.sizes = {.tensor = 2}, .sequence_parallel = true}, MeshLayout{.sizes = {.pipeline = 2}}}) {
    const ProbeOutput output = on(mesh).on_rank(0, [&](TrainingRank& rank) {
      return probe_scores(
          rank.model, rank.decoder, input(rank), {.method = AlignmentMethod::classify}, true,
          {.micro_batches = mesh.sizes.pipeline > 1 ? 2 : 1, .schedule = schedule_at(rank.mesh, mesh.pipeline())});
    });
    size_t gradients = 0;
    for (const auto& [name, tensor] : output) {
      const Tensor want = expected.load(name, *context.memory);
      if (name.starts_with("grad.")) {
        ++gradients, test::expect_gradient_close(name, tensor, want, 5e-5);
      } else {
        EXPECT_LE(test::difference(tensor, want).max_abs, name == "logits" ? 5e-5 : 5e-6)
            << name << " on " << mesh.str();
      }
    }
    EXPECT_EQ(gradients, stored) << mesh.str();
  }
}

NOUGHT_SIZE(medium);  // 8 seconds of the sanitizers each
TEST_P(EncoderClassifier, fifty_steps_have_the_losses_of_torch) {
  const Context context = Context::reference();
  const std::vector<float> expected =
      SafetensorsFile(golden_of(GetParam())).load("losses", *context.memory).to_vector<float>();
  test::TrainingCase of = on({});
  of.settings = {.optimizer = {.weight_decay = 0.01}};
  const std::vector<double> losses = of.on_rank(0, [&](TrainingRank& rank) {
    const ScoreInput rows = input(rank);
    const ClassifierConfig& classifier = *rank.decoder.config().classifier;
    std::vector<JudgedAnswer> texts;
    for (size_t row = 0; row < rows.ids.size(); ++row)
      texts.push_back({.ids = rows.ids[row], .number = static_cast<int64_t>(row), .wanted = rows.wanted[row]});
    const Batch batch =
        batch_of_answers(*rank.context.memory, texts,
                         {.scored = true, .pad_token_id = classifier.pad_token_id, .pooling = classifier.pooling});
    rank.decoder.set_objective(
        std::make_shared<SequenceObjective>(loss_of_scores(classifier.problem_type(), classifier.labels), 1));
    std::vector<double> made;
    for (size_t step = 0; step < expected.size(); ++step)
      made.push_back(
          rank.engine.step(std::span(&batch, 1), static_cast<double>(texts.size()), /*lr=*/1e-3, /*clipping=*/0).loss);
    return made;
  });
  for (size_t step = 0; step < expected.size(); ++step) EXPECT_NEAR(losses[step], expected[step], 1e-4) << step;
}

TEST_P(EncoderClassifier, its_config_is_written_as_it_was_read) {
  const ModelConfig config = ModelConfig::from_folder(folder_of(GetParam()));
  ASSERT_TRUE(config.classifier.has_value());
  EXPECT_TRUE(config.notes.empty()) << config.notes.front();
  const OrderedJson written = config.to_hf_json(DType::f32);
  EXPECT_THAT(written["architectures"][0].get<std::string>(), testing::EndsWith("ForSequenceClassification"));
  ModelConfig again = ModelConfig::from_json(Json::parse(written.dump()));
  if (config.classifier->names.empty()) again.classifier->names.clear();  // written are those that transformers means
  EXPECT_EQ(again.classifier, config.classifier);
  EXPECT_EQ(again, config);
}

INSTANTIATE_TEST_SUITE_P(Families, EncoderClassifier,
                         testing::Values("bert", "roberta", "xlm-roberta", "modernbert", "modernbert_mean"));

TEST(EncoderClassifiers, a_new_head_is_that_of_the_family) {
  const ModelConfig encoder = ModelConfig::from_folder(test::golden_folder("encoders/bert"));
  const ModelConfig three = with_classifier(encoder, 3, {}, {}, "bert");
  EXPECT_EQ(three.to_hf_json(DType::f32)["architectures"][0], "BertForSequenceClassification");
  const int64_t hidden = encoder.hidden_size;
  EXPECT_EQ(three.parameter_count(), encoder.parameter_count() + (hidden + 1) * (hidden + 3)) << "pooler, classifier";
}

TEST(EncoderClassifiers, texts_are_no_longer_than_the_positions_that_the_model_has_learned) {
  RunPlan plan;
  plan.model_dir = folder_of("bert");
  plan.alignment.method = AlignmentMethod::classify;
  plan.layout.seq_length = 1024, plan.layout.row_tokens = 4 * 1024;
  plan.resolved = {{"data.seq_length", "1024", "default of alignment.max_length"}};
  const RunPlan bounded = with_model_folder(plan);
  EXPECT_EQ(bounded.layout.seq_length, 32);
  EXPECT_EQ(bounded.layout.row_tokens, 4 * 32);
  EXPECT_EQ(bounded.resolved.at(0).value, "32");
  EXPECT_EQ(bounded.resolved.at(0).reason, "the model's number of positions");
  plan.alignment.length_given = true;
  EXPECT_EQ(with_model_folder(plan).layout.seq_length, 1024);
  std::string message;
  try {
    require_positions(plan, Decoder(ModelConfig::from_folder(plan.model_dir)));
  } catch (const ConfigError& error) {
    message = error.what();
  }
  EXPECT_THAT(message, testing::StartsWith("alignment.max_length = 1024: a sequence of 1024 tokens exceeds the 32 "
                                           "positions"));
}

TEST(EncoderClassifiers, an_unknown_pooling_is_refused) {
  std::string message;
  try {
    ModelConfig::from_json(Json{{"model_type", "modernbert"},
                                {"architectures", {"ModernBertForSequenceClassification"}},
                                {"classifier_pooling", "max"}});
  } catch (const ConfigError& error) {
    message = error.what();
  }
  EXPECT_THAT(message, testing::HasSubstr("classifier_pooling \"max\" is none of cls, mean"));
}

}  // namespace
}  // namespace nought::encoder_classifier_test
