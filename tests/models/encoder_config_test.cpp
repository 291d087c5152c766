// Encoders' configs: both spellings, what is written, and what is refused.
#include <set>

#include "support/golden.h"
#include "support/message_of.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/json.h"
#include "nought/models/config.h"
#include "nought/models/decoder.h"
#include "nought/models/names.h"
#include "nought/models/weight_files.h"

namespace nought::encoder_config_test {
namespace {

using test::message_of;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

ModelConfig read(const std::string& family, Json changes = Json::object()) {
  changes["model_type"] = family;
  return ModelConfig::from_json(changes);
}

std::string refusal(const std::string& family, const Json& changes) {
  return message_of<ConfigError>([&] { read(family, changes); });
}

ModelConfig without_notes(ModelConfig config) {
  config.notes.clear();
  return config;
}

class GoldenEncoderConfig : public testing::TestWithParam<std::string> {
 protected:
  std::string folder() const { return test::golden_folder("encoders/" + GetParam()); }
};

TEST_P(GoldenEncoderConfig, transformers_4_and_5_mean_the_same_model_and_so_does_what_is_written) {
  const ModelConfig config = ModelConfig::from_folder(folder());
  EXPECT_THAT(config.notes, Each(Not(HasSubstr("not a key"))));
  EXPECT_EQ(without_notes(ModelConfig::from_json(read_json_file(folder() + "/config_5.json"))), without_notes(config));
  EXPECT_EQ(without_notes(ModelConfig::from_json(Json::parse(config.to_hf_json(DType::f32).dump()))),
            without_notes(config));
  EXPECT_FALSE(config.causal || config.predicts_tokens || config.tie_word_embeddings);
}

/// The files begin without the prefix that a model with a head has; transformers reads both.
TEST_P(GoldenEncoderConfig, the_model_asks_for_every_tensor_but_the_pooler) {
  std::set<std::string> stored, asked;
  for (const TensorEntry& entry : WeightFiles(folder()).entries())
    if (!entry.name.starts_with("pooler.")) stored.insert(entry.name);
  const Decoder decoder(ModelConfig::from_folder(folder()));
  for (const auto& unit : decoder.units())
    for (const Parameter& parameter : unit->parameters()) asked.insert(alternative_names(parameter.name).front());
  EXPECT_EQ(asked, stored);
}

INSTANTIATE_TEST_SUITE_P(Families, GoldenEncoderConfig, testing::ValuesIn(ModelConfig::encoders()),
                         test::name_of_folder<std::string>);

TEST(EncoderConfig, released_models_have_the_parameters_that_transformers_counts) {
  EXPECT_EQ(read("bert").parameter_count(), 108891648);  // BERT base, without its pooler
  const Json positions{{"max_position_embeddings", 514}, {"type_vocab_size", 1}};
  EXPECT_EQ(read("roberta", positions).parameter_count(), 124055040);
  Json large = positions;
  large["vocab_size"] = 250002;
  EXPECT_EQ(read("xlm-roberta", large).parameter_count(), 277453056);
  EXPECT_EQ(read("modernbert").parameter_count(), 149014272);
}

TEST(EncoderConfig, positions_count_from_behind_the_padding) {
  const ModelConfig config = read("roberta", {{"max_position_embeddings", 514}, {"pad_token_id", 1}});
  EXPECT_EQ(config.max_positions, 512);
  EXPECT_EQ(config.position_offset, 2);
  EXPECT_EQ(config.to_hf_json(DType::f32)["max_position_embeddings"], 514);
  EXPECT_THAT(refusal("roberta", {{"max_position_embeddings", 4}, {"pad_token_id", 3}}), HasSubstr("leaves none"));
}

TEST(EncoderConfig, windows_reach_as_far_to_both_sides) {
  const ModelConfig config = read("modernbert", {{"num_hidden_layers", 4}, {"local_attention", 128}});
  EXPECT_THAT(config.sliding_windows, testing::ElementsAre(0, 65, 65, 0));
  EXPECT_EQ(config.to_hf_json(DType::f32)["local_attention"], 128);
  EXPECT_EQ(config.to_hf_json(DType::f32)["global_attn_every_n_layers"], 3);
  EXPECT_EQ(read("modernbert", {{"local_rope_theta", nullptr}}).local_rope->theta, 160000);
}

TEST(EncoderConfig, every_encoder_refuses_by_name_what_it_does_not_do) {
  for (const std::string& family : ModelConfig::encoders()) {
    SCOPED_TRACE(family);
    EXPECT_THAT(refusal(family, {{"is_decoder", true}}), HasSubstr("is_decoder is true"));
    EXPECT_THAT(refusal(family, {{"is_encoder_decoder", true}}), HasSubstr("is_encoder_decoder is true"));
    EXPECT_THAT(refusal(family + "s", Json::object()), HasSubstr("did you mean \"" + family + "\"?"));
    EXPECT_THAT(message_of<ConfigError>([&] { read(family).require_language_model("folder"); }),
                AllOf(HasSubstr("folder is an encoder (" + family + ")"), HasSubstr("nought embed")));
  }
  EXPECT_THAT(refusal("bert", {{"position_embedding_type", "relative_key"}}), HasSubstr("relative_key"));
}

TEST(EncoderConfig, a_head_is_left_out_and_said_so) {
  const ModelConfig config = read("bert", {{"architectures", {"BertForMaskedLM"}}});
  EXPECT_THAT(config.notes, testing::Contains(HasSubstr("BertForMaskedLM: its head for MaskedLM is dropped; the model "
                                                        "gives hidden states, as BertModel does")));
  EXPECT_TRUE(read("bert", {{"architectures", {"BertForSequenceClassification"}}}).notes.empty()) << "that one is read";
}

TEST(EncoderConfig, a_decoder_without_its_head_has_its_other_parameters) {
  const ModelConfig config = ModelConfig::from_folder(test::golden_folder("open/llama"));
  EXPECT_EQ(config.without_head().parameter_count(), config.parameter_count() - config.vocab_size * config.hidden_size);
}

}  // namespace
}  // namespace nought::encoder_config_test
