#include "nought/infer/embedding_config.h"

#include "support/golden.h"
#include "support/message_of.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"

namespace nought::embedding_config_test {
namespace {

using test::message_of;
using test::TempFolder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kModules = R"([{"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"},
                                     {"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}])";

EmbeddingConfig read(const TempFolder& folder) {
  const auto memory = Memory::create();
  return EmbeddingConfig::from_folder(folder.path(), *memory);
}

std::string refusal(const TempFolder& folder) {
  return message_of<Error>([&] { read(folder); });
}

TEST(EmbeddingConfig, a_folder_without_modules_says_no_pooling) {
  TempFolder folder;
  const EmbeddingConfig config = read(folder);
  EXPECT_FALSE(config.found);
  EXPECT_TRUE(config.pooling.empty());
  EXPECT_EQ(config.max_tokens, std::nullopt);
}

TEST(EmbeddingConfig, flags_of_older_versions_are_the_modes_of_newer_ones) {
  TempFolder folder;
  folder.write("modules.json", kModules);
  folder.write("1_Pooling/config.json", R"({"word_embedding_dimension": 8, "pooling_mode_cls_token": true,
                "pooling_mode_mean_tokens": false, "pooling_mode_lasttoken": true, "include_prompt": false})");
  const EmbeddingConfig config = read(folder);
  EXPECT_THAT(config.pooling, ElementsAre(PoolingMode::cls, PoolingMode::lasttoken));
  EXPECT_FALSE(config.include_prompt);
  folder.write("1_Pooling/config.json", R"({"pooling_mode": ["max", "cls"]})");
  EXPECT_THAT(read(folder).pooling, ElementsAre(PoolingMode::max, PoolingMode::cls));
  folder.write("1_Pooling/config.json", R"({"pooling_mode_mean_tokens": false})");
  EXPECT_THAT(read(folder).pooling, ElementsAre(PoolingMode::mean));
}

TEST(EmbeddingConfig, an_unknown_pooling_or_module_is_refused_by_its_name) {
  TempFolder folder;
  folder.write("modules.json", kModules);
  folder.write("1_Pooling/config.json", R"({"pooling_mode": "attentive"})");
  EXPECT_THAT(refusal(folder), AllOf(HasSubstr("1_Pooling/config.json: the pooling \"attentive\" is none of cls, max"),
                                     HasSubstr("lasttoken")));
  folder.write("1_Pooling/config.json", R"({"pooling_mode_attentive": true})");
  EXPECT_THAT(refusal(folder), HasSubstr("the pooling pooling_mode_attentive is none of pooling_mode_cls_token"));
  folder.write("1_Pooling/config.json", R"({"include_prompt": 3})");
  EXPECT_THAT(refusal(folder), HasSubstr("include_prompt is 3"));
  folder.write("modules.json", R"([{"path": "", "type": "sentence_transformers.models.BoW"}])");
  EXPECT_THAT(refusal(folder), HasSubstr("the module sentence_transformers.models.BoW is not computed; computed are "));
  folder.write("modules.json", R"([{"path": "", "type": "sentence_transformers.models.Transformer"}])");
  EXPECT_THAT(refusal(folder), HasSubstr("has no Pooling module"));
  folder.write("modules.json", "{}");
  EXPECT_THAT(refusal(folder), HasSubstr("expected a list of modules"));
}

TEST(EmbeddingConfig, dense_layers_have_their_weights_and_an_activation_that_is_known) {
  const auto memory = Memory::create();
  const EmbeddingConfig config = EmbeddingConfig::from_folder(test::golden_folder("encoders/xlm-roberta"), *memory);
  ASSERT_EQ(config.steps.size(), 2u);
  ASSERT_TRUE(config.steps[0].dense && !config.steps[1].dense);
  EXPECT_EQ(config.steps[0].dense->weight.shape(), (Shape{10, 24}));
  EXPECT_EQ(config.steps[0].dense->bias.shape(), (Shape{10}));
  EXPECT_EQ(config.steps[0].dense->activation, DenseActivation::tanh);
  TempFolder folder;
  folder.write("modules.json", R"([{"path": "2_Dense", "type": "sentence_transformers.models.Dense"}])");
  folder.write("2_Dense/config.json", R"({"activation_function": "torch.nn.modules.activation.ELU"})");
  EXPECT_THAT(refusal(folder), HasSubstr("activation_function ELU is none of Identity, Tanh"));
  folder.write("2_Dense/config.json", R"({"use_residual": true})");
  EXPECT_THAT(refusal(folder), HasSubstr("use_residual is true"));
}

TEST(EmbeddingConfig, the_length_of_sentence_transformers_counts_before_that_of_the_tokenizer) {
  TempFolder folder;
  folder.write("tokenizer_config.json", R"({"model_max_length": 1000000000000000019884624838656})");
  EXPECT_EQ(read(folder).max_tokens, std::nullopt);
  folder.write("tokenizer_config.json", R"({"model_max_length": 512, "truncation_side": "left"})");
  EXPECT_EQ(read(folder).max_tokens, 512);
  EXPECT_TRUE(read(folder).cuts_left);
  folder.write("sentence_bert_config.json", R"({"max_seq_length": 256, "do_lower_case": true})");
  EXPECT_EQ(read(folder).max_tokens, 256);
  EXPECT_TRUE(read(folder).lowercase);
}

TEST(EmbeddingConfig, prompts_have_names) {
  TempFolder folder;
  folder.write("config_sentence_transformers.json",
               R"({"prompts": {"query": "q: ", "document": ""}, "default_prompt_name": "query"})");
  const EmbeddingConfig config = read(folder);
  EXPECT_EQ(config.default_prompt, "query");
  EXPECT_EQ(config.prompt("query"), "q: ");
  EXPECT_THAT(message_of<ConfigError>([&] { config.prompt("passage"); }),
              HasSubstr("has no prompt \"passage\"; it has document, query"));
  folder.write("config_sentence_transformers.json", R"({"default_prompt_name": "query"})");
  EXPECT_THAT(refusal(folder), HasSubstr("names none"));
}

}  // namespace
}  // namespace nought::embedding_config_test
