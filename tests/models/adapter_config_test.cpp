// peft's keys: what is read, what is refused by name, and what is written.
#include "nought/models/adapter_config.h"

#include <fstream>

#include "support/golden_root.h"
#include "support/message_of.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"
#include "nought/base/json.h"

namespace nought::adapter_config_test {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

AdapterConfig read(const char* json) { return AdapterConfig::from_json(OrderedJson::parse(json), Origins("A"), ""); }

std::string error_of(const char* json) {
  return test::message_of<ConfigError>([&] { read(json); });
}

TEST(AdapterConfig, an_empty_object_has_pefts_defaults) {
  const AdapterConfig config = read("{}");
  EXPECT_EQ(config.r, 8);
  EXPECT_EQ(config.alpha, 8);
  EXPECT_FALSE(config.rslora);
  EXPECT_FALSE(config.targets.given());
  EXPECT_EQ(config.start, AdapterStart::uniform);
}

TEST(AdapterConfig, scales_are_alpha_by_rank_or_by_its_root) {
  EXPECT_DOUBLE_EQ(read(R"({"r": 4, "lora_alpha": 6})").scale_of(4, 6), 1.5);
  EXPECT_DOUBLE_EQ(read(R"({"use_rslora": true})").scale_of(4, 6), 3);
}

TEST(AdapterConfig, dropout_is_read_and_written) {
  EXPECT_EQ(read("{}").dropout, 0);
  EXPECT_EQ(read(R"({"lora_dropout": 0.05})").dropout, 0.05);
  EXPECT_EQ(read(R"({"lora_dropout": 0.05})").to_json()["lora_dropout"], 0.05);
}

TEST(AdapterConfig, lists_patterns_and_starts_are_read) {
  const AdapterConfig config =
      read(R"({"type": "lora", "target_modules": ["q_proj", "v_proj"], "layers_to_transform": 3,
      "exclude_modules": ".*layers\\.0.*", "rank_pattern": {"z": 2, "a": 3}, "init_lora_weights": "gaussian"})");
  EXPECT_THAT(config.targets.names, ElementsAre("q_proj", "v_proj"));
  EXPECT_EQ(config.excluded.pattern, ".*layers\\.0.*");
  EXPECT_THAT(config.layers, ElementsAre(3));
  EXPECT_EQ(config.rank_pattern.front().first, "z") << "the first that matches counts";
  EXPECT_EQ(config.start, AdapterStart::gaussian);
  EXPECT_TRUE(read(R"({"target_modules": "All-Linear"})").targets_all());
  EXPECT_EQ(read(R"({"init_lora_weights": false})").start, AdapterStart::random);
  for (const char* start : {"orthogonal", "olora", "pissa", "pissa_niter_16", "gaussian"}) {
    const AdapterConfig named = read(fmt::format("{{\"init_lora_weights\": \"{}\"}}", start).c_str());
    EXPECT_EQ(named.to_json()["init_lora_weights"], start);
    EXPECT_EQ(named.start_iterations, std::string(start) == "pissa_niter_16" ? 16 : 0);
  }
}

TEST(AdapterConfig, tokens_are_a_list_or_lists_of_layers) {
  using Tokens = decltype(AdapterConfig::tokens);
  for (const auto& [json, tokens] : std::vector<std::pair<const char*, Tokens>>{
           {"[4, 2]", {{"", {4, 2}}}},
           {R"({"embed_tokens": [4], "lm_head": [0, 7]})", {{"embed_tokens", {4}}, {"lm_head", {0, 7}}}},
           {"[]", {}},
           {"{}", {}},
           {"null", {}}}) {
    const AdapterConfig config = read(fmt::format("{{\"trainable_token_indices\": {}}}", json).c_str());
    EXPECT_EQ(config.tokens, tokens) << json;
    EXPECT_EQ(config.to_json()["trainable_token_indices"], tokens.empty() ? OrderedJson() : OrderedJson::parse(json));
  }
  EXPECT_TRUE(read(R"({"ensure_weight_tying": true})").to_json()["ensure_weight_tying"]);
}

TEST(AdapterConfig, what_is_not_supported_is_refused_by_name_unless_it_is_off) {
  const std::vector<std::pair<const char*, const char*>> cases{
      {R"({"lora_bias": true, "use_dora": true})", "A: lora_bias and use_dora do not go together"},
      {R"({"lora_dropout": 1})", "lora_dropout: expected a number >= 0 and < 1, found 1"},
      {R"({"bias": "some"})", "bias: expected none, all or lora_only"},
      {R"({"target_parameters": ["w"], "lora_dropout": 0.1})", "target_parameters does not go with lora_dropout"},
      {R"({"peft_type": "IA3"})", "peft_type = \"IA3\" is not supported"},
      {R"({"task_type": "SEQ_CLS"})", "task_type = \"SEQ_CLS\" is not supported"},
      {R"({"init_lora_weights": "eva"})", "this start is not supported yet"},
      {R"({"init_lora_weights": "pissa_niter_0"})", "an unknown start"},
      {R"({"init_lora_weights": "other"})", "an unknown start"},
      {R"({"loftq_config": {"bits": 4}})", "(LoftQ)"}};
  for (const auto& [json, words] : cases) EXPECT_THAT(error_of(json), HasSubstr(words)) << json;
  EXPECT_NO_THROW(read(R"({"use_dora": false, "lora_dropout": 0.0, "bias": "none", "target_parameters": [],
      "loftq_config": {}, "eva_config": null, "megatron_core": "megatron.core", "use_bdlora": null})"));
}

TEST(AdapterConfig, mistakes_are_named) {
  EXPECT_THAT(error_of(R"({"lora_alfa": 3})"), HasSubstr("A: lora_alfa: unknown key of an adapter (did you mean"));
  EXPECT_THAT(error_of(R"({"r": 0})"), HasSubstr("A: r: a rank is at least 1, got 0"));
  EXPECT_THAT(error_of(R"({"r": "8"})"), HasSubstr("A: r: expected integers"));
  EXPECT_THAT(error_of(R"({"target_modules": "("})"), HasSubstr("A: target_modules: "));
  EXPECT_THAT(error_of(R"({"target_modules": "q_proj", "layers_to_transform": [1]})"),
              HasSubstr("layers_to_transform needs a list"));
  const auto error_of_tokens = [](const std::string& tokens) {
    return error_of(("{\"trainable_token_indices\": " + tokens + "}").c_str());
  };
  EXPECT_THAT(error_of_tokens("7"), HasSubstr("A: trainable_token_indices: expected a list of tokens, or lists by"));
  EXPECT_THAT(error_of_tokens("[1.5]"), HasSubstr("A: trainable_token_indices: expected integers"));
  EXPECT_THAT(error_of_tokens("[-1]"), HasSubstr("there is no token -1"));
  EXPECT_THAT(error_of_tokens(R"({"embed_tokens": [3, 4, 3]})"), HasSubstr("token 3 comes twice"));
}

TEST(AdapterConfig, every_file_of_peft_is_written_back_as_it_was) {
  for (const char* name : {"llama", "gpt2", "experts", "embedding", "dora", "dora_gpt2", "bias", "tied", "tied_table",
                           "fused", "mixtral_all", "head", "tokens", "tokens_tied", "tokens_head", "tie_save"}) {
    std::ifstream file(test::golden_root() + "/lora/" + name + "/adapter/adapter_config.json");
    OrderedJson json = OrderedJson::parse(file);
    const AdapterConfig config = AdapterConfig::from_json(json, Origins(name));
    if (json["target_parameters"].empty()) json["target_parameters"] = nullptr;
    EXPECT_EQ(config.to_json().dump(2), json.dump(2));
  }
}

}  // namespace
}  // namespace nought::adapter_config_test
