// What an adapter trains of the vocabulary: rows of tokens, and a table that stays the head.
#include "nought/models/adapter_vocabulary.h"

#include "support/golden.h"
#include "support/message_of.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/json.h"
#include "nought/models/adapter_modules.h"

namespace nought::adapter_vocabulary_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const char* const kTied = "lora/tokens_tied/base";
const char* const kUntied = "lora/tokens/base";

ModelAdapter chosen(const std::string& keys, const char* model = kUntied) {
  OrderedJson json = OrderedJson::parse("{" + keys + "}");
  if (!json.contains("target_modules")) json["target_modules"] = "all-linear";
  const ModelConfig config = ModelConfig::from_folder(test::golden_folder(model));
  return resolve_adapter(AdapterConfig::from_json(json, Origins("A")), config, "A");
}

std::string error_of(const std::string& keys, const char* model = kUntied) {
  return test::message_of<ConfigError>([&] { chosen(keys, model); });
}

TEST(AdapterVocabulary, a_list_means_the_table_and_layers_are_named_by_their_ends) {
  EXPECT_THAT(chosen(R"("trainable_token_indices": [3, 1])").tokens.at("model.embed_tokens"), ElementsAre(3, 1));
  EXPECT_THAT(chosen(R"("trainable_token_indices": [3])", "open/gpt2").tokens.at("transformer.wte"), ElementsAre(3));
  const ModelAdapter both = chosen(R"("trainable_token_indices": {"lm_head": [5], "model.embed_tokens": [6]})");
  EXPECT_THAT(both.tokens.at("lm_head"), ElementsAre(5));
  EXPECT_THAT(both.tokens.at("model.embed_tokens"), ElementsAre(6));
  EXPECT_FALSE(both.empty());
}

TEST(AdapterVocabulary, a_tied_head_has_the_rows_of_the_table) {
  const ModelAdapter both = chosen(R"("trainable_token_indices": {"lm_head": [5], "embed_tokens": [5]})", kTied);
  EXPECT_EQ(both.tokens.size(), 1u);
  EXPECT_TRUE(both.tokens.contains("model.embed_tokens"));
  for (const char* keys : {R"("trainable_token_indices": {"lm_head": [5], "embed_tokens": [6]})",
                           R"("trainable_token_indices": {"lm_head": [5]})"})
    EXPECT_THAT(error_of(keys, kTied), HasSubstr("trainable_token_indices of lm_head, which is model.embed_tokens"));
}

TEST(AdapterVocabulary, what_cannot_be_is_named) {
  EXPECT_THAT(error_of(R"("trainable_token_indices": [67])"),
              HasSubstr("A: trainable_token_indices has 67, and the model has 67 tokens: 0 to 66"));
  EXPECT_THAT(error_of(R"("trainable_token_indices": {"q_proj": [1]})"),
              HasSubstr("names q_proj, and tokens have rows in model.embed_tokens and lm_head"));
  EXPECT_THAT(error_of(R"("trainable_token_indices": {"embed_tokens": [1], "model.embed_tokens": [1]})"),
              HasSubstr("two lists for model.embed_tokens"));
  EXPECT_THAT(error_of(R"("trainable_token_indices": [1], "modules_to_save": ["embed_tokens"])"),
              HasSubstr("model.embed_tokens is among modules_to_save or target_modules"));
  EXPECT_THAT(error_of(R"("trainable_token_indices": {"lm_head": [1]})", "open/phi"),
              HasSubstr("of lm_head of a phi model, which has a bias"));
  EXPECT_EQ(chosen(R"("trainable_token_indices": [1])", "open/phi").tokens.size(), 1u) << "of its table alone";
}

TEST(AdapterVocabulary, a_table_that_is_trained_whole_stays_the_head_if_asked) {
  const ModelConfig tied = ModelConfig::from_folder(test::golden_folder(kTied));
  for (const char* each : {R"(["embed_tokens"])", R"(["lm_head"])", R"(["embed_tokens", "model.embed_tokens"])"}) {
    const std::string saved = std::string(R"("modules_to_save": )") + each;
    const ModelAdapter together = chosen(saved + R"(, "ensure_weight_tying": true)", kTied);
    EXPECT_THAT(together.saved, ElementsAre("model.embed_tokens.weight"));
    EXPECT_TRUE(with_adapter(tied, together).tie_word_embeddings);
    EXPECT_FALSE(with_adapter(tied, chosen(saved, kTied)).tie_word_embeddings);
  }
  EXPECT_THAT(chosen(R"("modules_to_save": ["lm_head"], "ensure_weight_tying": true)").saved,
              ElementsAre("lm_head.weight"))
      << "nothing is tied";
  EXPECT_THAT(error_of(R"("ensure_weight_tying": true, "target_modules": ["lm_head"])", kTied),
              HasSubstr("ensure_weight_tying with lm_head among target_modules is not supported yet"));
}

}  // namespace
}  // namespace nought::adapter_vocabulary_test
