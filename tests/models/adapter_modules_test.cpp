// Which layers an adapter's config chooses, by peft's rules, and what is said of a choice that cannot be.
#include "nought/models/adapter_modules.h"

#include "support/golden.h"
#include "support/message_of.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/json.h"

namespace nought::adapter_modules_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

AdapterConfig config_of(const std::string& json) {
  return AdapterConfig::from_json(OrderedJson::parse(json), Origins("A"));
}

ModelAdapter chosen(const std::string& json, const char* family = "open/llama") {
  return resolve_adapter(config_of(json), ModelConfig::from_folder(test::golden_folder(family)), "A");
}

std::vector<std::string> layers(const std::string& json, const char* family = "open/llama") {
  std::vector<std::string> names;
  for (const auto& [name, of] : chosen(json, family).layers) names.push_back(name);
  return names;
}

std::string error_of(const std::string& json, const char* family = "open/llama") {
  return test::message_of<ConfigError>([&] { chosen(json, family); });
}

TEST(AdapterModules, names_choose_the_layers_that_end_in_them) {
  EXPECT_EQ(layers(R"({"target_modules": ["q_proj", "self_attn.v_proj"], "layers_to_transform": [1]})"),
            (std::vector<std::string>{"model.layers.1.self_attn.q_proj", "model.layers.1.self_attn.v_proj"}));
  EXPECT_THAT(layers(R"({"target_modules": ["c_proj"], "layers_to_transform": 0})", "open/gpt2"),
              UnorderedElementsAre("transformer.h.0.attn.c_proj", "transformer.h.0.mlp.c_proj"));
  EXPECT_THAT(layers(R"({"target_modules": ["q_proj"], "layers_to_transform": [0], "layers_pattern": "layers"})"),
              ElementsAre("model.layers.0.self_attn.q_proj"));
  EXPECT_THAT(error_of(R"({"target_modules": ["q_proj", "proj"]})"), HasSubstr("\"proj\" matches no layer"));
}

TEST(AdapterModules, a_pattern_is_of_whole_names_and_exclusions_win) {
  EXPECT_THAT(layers(R"({"target_modules": ".*\\.1\\..*(q|k)_proj"})"),
              ElementsAre("model.layers.1.self_attn.k_proj", "model.layers.1.self_attn.q_proj"));
  EXPECT_THAT(
      layers(R"({"target_modules": ".*(q|k)_proj", "exclude_modules": ["k_proj", "model.layers.0.self_attn.q_proj"]})"),
      ElementsAre("model.layers.1.self_attn.q_proj"));
}

TEST(AdapterModules, all_linear_is_every_product_but_the_head) {
  EXPECT_EQ(layers(R"({"target_modules": "all-linear"})").size(), 14u);
  EXPECT_EQ(layers(R"({"target_modules": "all-linear"})", "open/gpt2").size(), 8u);
}

TEST(AdapterModules, experts_and_routers_are_parameters_of_a_layer) {
  const ModelAdapter adapter =
      chosen(R"({"r": 2, "target_modules": ["q_proj"], "target_parameters": ["experts.down_proj", "gate.weight"]})",
             "open/mixtral");
  const LowRank* experts = adapter.find("model.layers.0.mlp.experts.down_proj");
  ASSERT_NE(experts, nullptr);
  EXPECT_TRUE(experts->of_experts);
  EXPECT_EQ(adapter.find("model.layers.0.mlp.experts.gate_up_proj"), nullptr);
  ASSERT_NE(adapter.find("model.layers.1.mlp.gate"), nullptr);
  EXPECT_FALSE(adapter.find("model.layers.1.mlp.gate")->of_experts);
  EXPECT_NE(chosen(R"({"r": 2, "target_modules": ["gate"]})", "open/mixtral").find("model.layers.0.mlp.gate"), nullptr);
}

TEST(AdapterModules, experts_in_one_tensor_are_adapted_as_others_are) {
  for (const char* family : {"open/gpt_oss", "open/llama4_text"}) {
    const ModelAdapter adapter = chosen(
        R"({"r": 2, "target_modules": ["q_proj"], "target_parameters": ["gate_up_proj", "router.weight"]})", family);
    const std::string mlp =
        family == std::string("open/gpt_oss") ? "model.layers.1.mlp" : "model.layers.1.feed_forward";
    ASSERT_NE(adapter.find(mlp + ".experts.gate_up_proj"), nullptr) << family;
    EXPECT_TRUE(adapter.find(mlp + ".experts.gate_up_proj")->of_experts);
    EXPECT_EQ(adapter.find(mlp + ".experts.down_proj"), nullptr);
    EXPECT_NE(adapter.find(mlp + ".router"), nullptr);
  }
}

TEST(AdapterModules, all_linear_means_experts_where_peft_means_them) {
  for (const char* family : {"open/mixtral", "open/qwen3_moe", "open/glm4_moe", "open/olmoe", "open/qwen3_next"}) {
    const ModelAdapter adapter = chosen(R"({"r": 4, "lora_alpha": 2, "target_modules": "all-linear"})", family);
    const LowRank* up = adapter.find("model.layers.1.mlp.experts.gate_up_proj");
    ASSERT_NE(up, nullptr) << family;
    EXPECT_EQ(up->rank, 8) << "two products in one";
    EXPECT_EQ(up->scale, 0.5);
    EXPECT_EQ(adapter.find("model.layers.1.mlp.experts.down_proj")->rank, 4);
    EXPECT_NE(adapter.find("model.layers.1.mlp.gate"), nullptr);
  }
  const ModelAdapter shared = chosen(R"({"r": 1, "target_modules": "all-linear"})", "open/qwen2_moe");
  EXPECT_EQ(shared.find("model.layers.1.mlp.experts.down_proj"), nullptr);
  EXPECT_NE(shared.find("model.layers.1.mlp.shared_expert_gate"), nullptr);
  EXPECT_EQ(shared.find("model.layers.1.mlp.gate"), nullptr);
}

/// As peft has it.
TEST(AdapterModules, the_gate_of_a_shared_expert_takes_a_rank_above_its_one_output) {
  const ModelAdapter adapter = chosen(R"({"r": 4, "target_modules": "all-linear"})", "open/qwen2_moe");
  ASSERT_NE(adapter.find("model.layers.0.mlp.shared_expert_gate"), nullptr);
  EXPECT_EQ(adapter.find("model.layers.0.mlp.shared_expert_gate")->rank, 4);
}

TEST(AdapterModules, families_have_pefts_defaults_or_are_asked_for_names) {
  EXPECT_EQ(layers("{}").size(), 4u);
  EXPECT_EQ(layers("{}", "open/gpt_neox").front(), "gpt_neox.layers.0.attention.query_key_value");
  EXPECT_THAT(layers(R"({"r": 2, "layers_to_transform": 0})", "open/phi"),
              UnorderedElementsAre("model.layers.0.mlp.fc1", "model.layers.0.mlp.fc2",
                                   "model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.v_proj"));
  EXPECT_THAT(error_of("{}", "open/olmo2"), HasSubstr("peft has no default for olmo2: write \"all-linear\", or names"));
}

TEST(AdapterModules, ranks_and_scales_follow_their_patterns) {
  const ModelAdapter adapter = chosen(R"({"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "k_proj", "down_proj"],
      "rank_pattern": {"^model\\.layers\\.1\\.self_attn\\.k_proj": 2, "down_proj": 3}, "alpha_pattern": {"q_proj": 20}})");
  EXPECT_EQ(adapter.find("model.layers.0.self_attn.k_proj")->rank, 4);
  EXPECT_EQ(adapter.find("model.layers.1.self_attn.k_proj")->rank, 2);
  EXPECT_DOUBLE_EQ(adapter.find("model.layers.1.self_attn.k_proj")->scale, 4);
  EXPECT_EQ(adapter.find("model.layers.0.mlp.down_proj")->rank, 3);
  EXPECT_DOUBLE_EQ(adapter.find("model.layers.0.self_attn.q_proj")->scale, 5);
  EXPECT_EQ(adapter.find("model.layers.0.mlp.up_proj"), nullptr);
}

TEST(AdapterModules, weights_that_are_saved_are_trained_whole_and_not_adapted) {
  const ModelAdapter adapter =
      chosen(R"({"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]})", "open/qwen3_moe");
  EXPECT_THAT(adapter.saved, ElementsAre("lm_head.weight"));
  EXPECT_THAT(error_of(R"({"modules_to_save": ["nothing"], "target_modules": ["q_proj"]})", "open/qwen3_moe"),
              HasSubstr("modules_to_save \"nothing\" matches nothing"));
}

TEST(AdapterModules, biases_are_trained_by_choice_and_a_table_may_be_a_target) {
  const ModelAdapter own =
      chosen(R"({"target_modules": ["q_proj", "embed_tokens"], "bias": "lora_only"})", "open/qwen2");
  EXPECT_NE(own.find("model.embed_tokens"), nullptr);
  EXPECT_TRUE(own.saves("model.layers.0.self_attn.q_proj.bias"));
  EXPECT_FALSE(own.saves("model.layers.0.self_attn.v_proj.bias"));
  EXPECT_TRUE(chosen(R"({"bias": "all"})", "open/qwen2").saves("model.layers.0.self_attn.k_proj.bias"));
}

TEST(AdapterModules, what_matches_nothing_or_cannot_be_is_named) {
  EXPECT_THAT(error_of(R"({"target_modules": ["q_prj"]})"),
              HasSubstr("\"q_prj\" matches no layer of this llama model"));
  EXPECT_THAT(error_of(R"({"target_modules": ["q_prj"]})"), HasSubstr("q_proj"));
  EXPECT_THAT(error_of(R"({"target_modules": "q_proj"})"), HasSubstr("it has to match a whole name, such as model."));
  EXPECT_THAT(error_of(R"({"target_modules": ["experts.0.down_proj"]})", "open/qwen3_moe"),
              HasSubstr("is of experts, which target_parameters names"));
  EXPECT_THAT(error_of(R"({"target_modules": ["q_proj"], "target_parameters": ["up_proj"]})", "open/qwen3_moe"),
              HasSubstr("target_parameters \"up_proj\" matches no parameter of this qwen3_moe model"));
  EXPECT_THAT(error_of(R"({"target_parameters": ["down_proj"]})"), HasSubstr("which has no experts: remove it"));
  EXPECT_THAT(error_of(R"({"target_modules": ["q_proj", "project_in"]})", "open/opt_post"),
              HasSubstr("\"project_in\" is between rows of tokens and hidden states, where no adapter is added"));
  EXPECT_THAT(error_of(R"({"r": 1000})"), HasSubstr("is above that of its matrix"));
  EXPECT_THAT(error_of(R"({"target_modules": ["q_proj"], "layers_to_transform": [9]})"), HasSubstr("chooses no layer"));
}

TEST(AdapterModules, files_name_the_layers_by_the_shortest_ends_that_tell_them_apart) {
  const ModelConfig config = ModelConfig::from_folder(test::golden_folder("open/llama"));
  ModelConfig deep = config;
  deep.num_layers = 4, deep.sliding_windows.assign(4, 0);
  const auto names = [](const ModelConfig& of) {
    return with_named_layers(config_of(R"({"target_modules": "all-linear"})"), of).targets.names;
  };
  EXPECT_EQ(names(config).size(), 14u);
  EXPECT_THAT(names(deep), ElementsAre("down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"));
  EXPECT_THAT(with_named_layers(config_of("{}"), config).targets.names, ElementsAre("q_proj", "v_proj"));
}

TEST(AdapterModules, a_line_tells_layers_of_one_kind) {
  EXPECT_THAT(describe_adapter(chosen(R"({"r": 4, "lora_alpha": 6})")),
              ElementsAre("q_proj x 2, rank 4, scale 1.5", "v_proj x 2, rank 4, scale 1.5"));
}

}  // namespace
}  // namespace nought::adapter_modules_test
