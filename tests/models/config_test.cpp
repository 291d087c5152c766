#include "nought/models/config.h"

#include <cmath>
#include <fstream>
#include <map>
#include <set>

#include "support/golden.h"
#include "support/golden_root.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "nought/models/weight_files.h"

namespace nought::config_test {
namespace {

using nlohmann::json;
using test::message_of;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::filesystem::path golden(std::string_view name) { return std::filesystem::path(test::golden_root()) / name; }

json with(const std::string& family, const json& changes) {
  json config{{"model_type", family}};
  config.update(changes);
  return config;
}

ModelConfig read(const std::string& family, const json& changes) {
  return ModelConfig::from_json(with(family, changes));
}

std::string refusal(const std::string& family, const json& changes) {
  return message_of<ConfigError>([&] { read(family, changes); });
}

/// One or more folders of each family.
std::vector<const char*> golden_families() {
  std::vector<const char*> all(std::begin(test::kGoldenFamilies), std::end(test::kGoldenFamilies));
  all.insert(all.end(), std::begin(test::kGoldenOptions), std::end(test::kGoldenOptions));
  return all;
}

std::vector<const char*> all_golden() {
  std::vector<const char*> all = golden_families();
  all.insert(all.end(), std::begin(test::kGoldenVariants), std::end(test::kGoldenVariants));
  return all;
}

TEST(ModelConfig, golden_configs_count_the_parameters_of_their_weights) {
  for (const char* name : golden_families()) {
    const ModelConfig config = ModelConfig::from_folder(golden(name));
    int64_t elements = 0;
    for (const TensorEntry& entry : WeightFiles(golden(name)).entries()) elements += entry.shape.numel();
    EXPECT_EQ(config.parameter_count(), elements) << name;
    EXPECT_THAT(config.notes, IsEmpty()) << name;
  }
}

TEST(ModelConfig, llama_defaults_are_those_of_transformers) {
  const ModelConfig config = read("llama", json::object());
  EXPECT_EQ(config.parameter_count(), 6738415616);  // Llama 7B
  EXPECT_EQ(config.head_dim, 128);
  EXPECT_EQ(config.num_kv_heads, 32);
  EXPECT_EQ(config.max_positions, 2048);
  EXPECT_EQ(config.rope.rotary_dim, 128);
  EXPECT_EQ(config.rope.theta, 10000);
  EXPECT_EQ(config.norm, NormKind::rms);
  EXPECT_EQ(config.norm_eps, 1e-6);
  EXPECT_EQ(config.activation, Activation::silu);
  EXPECT_EQ(config.weight_layout, WeightLayout::out_in);
  EXPECT_FALSE(config.tie_word_embeddings);
  EXPECT_EQ(config.qkv_packing, QkvPacking::separate);
  EXPECT_FALSE(config.qkv_bias || config.output_bias || config.mlp_bias);
  EXPECT_NEAR(config.attention_scale, 0.08838834764831845, 1e-15);
  EXPECT_EQ(config.residual_initializer_scale, 1);
}

TEST(ModelConfig, gpt2_defaults_are_those_of_transformers_without_dropout) {
  const ModelConfig config = read("gpt2", json::object());
  EXPECT_EQ(config.parameter_count(), 124439808);  // GPT-2 small
  EXPECT_EQ(config.intermediate_size, 3072);
  EXPECT_EQ(config.rope.rotary_dim, 0);
  EXPECT_EQ(config.positions, PositionKind::learned);
  EXPECT_EQ(config.norm, NormKind::layer);
  EXPECT_EQ(config.norm_eps, 1e-5);
  EXPECT_EQ(config.mlp, MlpKind::plain);
  EXPECT_EQ(config.activation, Activation::gelu_tanh);
  EXPECT_EQ(config.weight_layout, WeightLayout::in_out);
  EXPECT_EQ(config.qkv_packing, QkvPacking::fused);
  EXPECT_TRUE(config.tie_word_embeddings && config.qkv_bias && config.output_bias && config.mlp_bias);
  EXPECT_NEAR(config.residual_initializer_scale, 0.2041241452319315, 1e-15);
  EXPECT_THAT(config.notes, IsEmpty());
}

TEST(ModelConfig, options_reach_their_fields) {
  const ModelConfig llama = read("llama", {{"attention_bias", true},
                                           {"mlp_bias", true},
                                           {"hidden_act", "gelu"},
                                           {"eos_token_id", {2, 5}},
                                           {"head_dim", nullptr},
                                           {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 5e5}}}});
  EXPECT_TRUE(llama.qkv_bias && llama.output_bias && llama.mlp_bias);
  EXPECT_EQ(llama.activation, Activation::gelu_erf);
  EXPECT_EQ(llama.rope.theta, 5e5);
  EXPECT_THAT(llama.eos_token_ids, ElementsAre(2, 5));
  const ModelConfig gpt2 = read("gpt2", {{"hidden_size", 96},
                                         {"n_head", 6},
                                         {"n_inner", 100},
                                         {"scale_attn_weights", false},
                                         {"activation_function", "gelu"}});
  EXPECT_EQ(gpt2.head_dim, 16);
  EXPECT_EQ(gpt2.intermediate_size, 100);
  EXPECT_EQ(gpt2.attention_scale, 1);
  EXPECT_EQ(gpt2.activation, Activation::gelu_erf);
}

TEST(ModelConfig, what_would_change_the_result_is_refused_by_name) {
  EXPECT_THAT(refusal("lama", json::object()), HasSubstr("(did you mean \"llama\"?)"));
  EXPECT_THAT(message_of<ConfigError>([] { ModelConfig::from_json(json::object()); }), HasSubstr("no model_type"));
  EXPECT_THAT(message_of<ConfigError>([] { ModelConfig::from_json(json::array()); }), HasSubstr("expected an object"));
  EXPECT_THAT(refusal("llama", {{"rope_scaling", {{"rope_type", "proportional"}, {"factor", 2}}}}),
              HasSubstr("\"proportional\""));
  EXPECT_THAT(refusal("llama", {{"rope_scaling", {{"rope_type", "dynamic"}, {"factor", 0.5}}}}),
              HasSubstr("needs a factor of 1 or more"));
  EXPECT_THAT(refusal("llama", {{"rope_scaling", {{"rope_type", "llama3"}, {"factor", 8}}}}),
              HasSubstr("low_freq_factor is missing"));
  EXPECT_THAT(refusal("llama", {{"rope_parameters", {{"rope_type", "yarn"}}}}), HasSubstr("rope_parameters"));
  EXPECT_THAT(refusal("llama", {{"partial_rotary_factor", 1.5}}), HasSubstr("partial_rotary_factor is 1.5"));
  EXPECT_THAT(refusal("phi3", {{"rope_scaling", {{"type", "longrope"}, {"short_factor", {1}}, {"long_factor", {1}}}}}),
              HasSubstr("a list of 48 numbers"));
  EXPECT_THAT(refusal("gemma3_text", {{"attn_logit_softcapping", 50}}), HasSubstr("attn_logit_softcapping is 50"));
  EXPECT_THAT(refusal("gemma3_text", {{"use_bidirectional_attention", true}}), HasSubstr("use_bidirectional"));
  EXPECT_THAT(refusal("qwen2", {{"layer_types", {"full_attention"}}}), HasSubstr("a list of 32 entries"));
  EXPECT_THAT(refusal("qwen2", {{"num_hidden_layers", 1}, {"layer_types", {"linear_attention"}}}),
              HasSubstr("layer_types[0] is \"linear_attention\""));
  EXPECT_THAT(refusal("qwen2", {{"num_hidden_layers", 1}, {"layer_types", {"sliding_attention"}}}),
              HasSubstr("no sliding_window"));
  EXPECT_THAT(refusal("llama", {{"pretraining_tp", 2}}), HasSubstr("pretraining_tp is 2"));
  EXPECT_THAT(refusal("llama", {{"hidden_act", "relu6"}}), HasSubstr("hidden_act is \"relu6\""));
  EXPECT_THAT(refusal("llama", {{"hidden_size", 100}}), HasSubstr("not divisible by 32 heads"));
  EXPECT_THAT(refusal("llama", {{"num_key_value_heads", 5}}), HasSubstr("not a multiple of num_key_value_heads 5"));
  EXPECT_THAT(refusal("llama", {{"head_dim", 7}}), HasSubstr("even"));
  EXPECT_THAT(refusal("gpt2", {{"add_cross_attention", true}}), HasSubstr("add_cross_attention"));
  EXPECT_THAT(refusal("gpt2", {{"n_embd", 64}, {"hidden_size", 96}}), HasSubstr("n_embd and hidden_size"));
}

TEST(ModelConfig, every_family_refuses_by_name_what_it_does_not_do) {
  for (const std::string& family : ModelConfig::families()) {
    SCOPED_TRACE(family);
    EXPECT_THAT(refusal(family + "_of_old", json::object()),
                AllOf(HasSubstr("model_type \"" + family + "_of_old\" is not supported"), HasSubstr(family)));
    EXPECT_THAT(refusal(family, {{"is_encoder_decoder", true}}), HasSubstr("is_encoder_decoder is true"));
    EXPECT_THAT(refusal(family, {{"vocab_sizes", 100}}), HasSubstr("did you mean \"vocab_size\"?"));
    if (family != "gpt2" && family != "opt") {
      EXPECT_THAT(refusal(family, {{"rope_scaling", {{"rope_type", "proportional"}, {"factor", 2.0}}}}),
                  HasSubstr("\"proportional\" is not supported"));
    }
    const bool older = family == "gpt2" || family == "opt";
    const std::string activation = older                         ? "activation_function"
                                   : family.starts_with("gemma") ? "hidden_activation"
                                                                 : "hidden_act";
    if (family != "gpt_oss") {  // whose activation is its own
      EXPECT_THAT(refusal(family, {{activation, "relu6"}}), HasSubstr(activation + " is \"relu6\""));
    }
  }
  // One option of each that only it has, or that it alone restricts.
  const std::map<std::string, std::pair<json, const char*>> own{
      {"cohere2", {{{"sliding_window", nullptr}}, "sliding_window is null"}},
      {"deepseek_v2", {{{"scoring_func", "sigmoid"}}, "scoring_func is \"sigmoid\""}},
      {"deepseek_v3", {{{"moe_layer_freq", 2}}, "moe_layer_freq is 2"}},
      {"ernie4_5", {{{"use_bias", 2}}, "use_bias is 2"}},
      {"ernie4_5_moe", {{{"moe_norm_min", 1e-3}}, "moe_norm_min is 0.001"}},
      {"exaone4",
       {{{"num_hidden_layers", 1}, {"layer_types", {"full_attention"}}}, "sliding_window is set, and no layer slides"}},
      {"gemma", {{{"num_attention_heads", 15}, {"num_key_value_heads", 4}}, "num_key_value_heads 4"}},
      {"gemma2", {{{"query_pre_attn_scalar", 0}}, "query_pre_attn_scalar"}},
      {"gemma3_text", {{{"final_logit_softcapping", "x"}}, "final_logit_softcapping"}},
      {"glm4", {{{"partial_rotary_factor", 2}}, "partial_rotary_factor is 2"}},
      {"glm4_moe", {{{"n_group", 7}}, "7 groups"}},
      {"gpt2", {{{"add_cross_attention", true}}, "add_cross_attention is true"}},
      {"gpt_neox", {{{"rotary_pct", 2}}, "partial_rotary_factor is 2"}},
      {"gpt_oss", {{{"swiglu_limit", 5.0}}, "swiglu_limit is 5"}},
      {"granite", {{{"residual_multiplier", 0}}, "residual_multiplier is 0"}},
      {"lfm2",
       {{{"num_hidden_layers", 1}, {"layer_types", {"linear_attention"}}}, "supported are conv and full_attention"}},
      {"llama", {{{"pretraining_tp", 2}}, "pretraining_tp is 2"}},
      {"llama4_text", {{{"num_experts_per_tok", 2}}, "num_experts_per_tok is 2"}},
      {"ministral3", {{{"sliding_window", "all"}}, "sliding_window is \"all\""}},
      {"minimax_m2", {{{"rotary_dim", 5}}, "rotary_dim 5 is odd"}},
      {"mistral", {{{"sliding_window", "all"}}, "sliding_window is \"all\""}},
      {"mixtral", {{{"num_experts_per_tok", 9}}, "more than the 8 experts"}},
      {"olmo2", {{{"rms_norm_eps", -1}}, "rms_norm_eps is -1"}},
      {"olmo3",
       {{{"rope_parameters",
          {{"full_attention", {{"rope_theta", 5e5}}}, {"sliding_attention", {{"rope_theta", 1e4}}}}}},
        "rope_parameters.sliding_attention must be plain"}},
      {"olmoe", {{{"clip_qkv", 0}}, "clip_qkv is 0, expected a positive number"}},
      {"opt", {{{"layer_norm_elementwise_affine", false}}, "layer_norm_elementwise_affine is false"}},
      {"phi", {{{"qk_layernorm", true}}, "qk_layernorm is true"}},
      {"phi3", {{{"partial_rotary_factor", 0}}, "partial_rotary_factor is 0"}},
      {"qwen2", {{{"num_hidden_layers", 1}, {"layer_types", {"linear_attention"}}}, "linear_attention"}},
      {"qwen2_moe", {{{"decoder_sparse_step", 0}}, "decoder_sparse_step is 0"}},
      {"qwen3", {{{"num_hidden_layers", 1}, {"layer_types", {"chunked_attention"}}}, "chunked_attention"}},
      {"qwen3_5_moe_text", {{{"num_experts_per_tok", 1000}}, "more than the 256 experts"}},
      {"qwen3_5_text", {{{"hidden_act", "gelu"}}, "hidden_act is \"gelu\""}},
      {"qwen3_next", {{{"linear_num_value_heads", 33}}, "33 is no multiple of linear_num_key_heads 16"}},
      {"qwen3_moe", {{{"num_experts_per_tok", 1000}}, "more than the 128 experts"}},
      {"seed_oss", {{{"pretraining_tp", 2}}, "pretraining_tp is 2"}},
      {"smollm3", {{{"no_rope_layers", {1, 0}}}, "no_rope_layers must be a list of 36 numbers"}},
      {"starcoder2", {{{"norm_epsilon", -1}}, "norm_epsilon is -1"}},
  };
  for (const std::string& family : ModelConfig::families()) {
    ASSERT_TRUE(own.contains(family)) << "say what " << family << " refuses";
    EXPECT_THAT(refusal(family, own.at(family).first), HasSubstr(own.at(family).second)) << family;
  }
}

TEST(ModelConfig, values_of_a_wrong_type_or_range_are_refused) {
  EXPECT_THAT(refusal("llama", {{"hidden_size", "4096"}}), HasSubstr("hidden_size is \"4096\", expected an integer"));
  EXPECT_THAT(refusal("llama", {{"hidden_size", 4096.5}}), HasSubstr("expected an integer"));
  EXPECT_THAT(refusal("llama", {{"num_hidden_layers", 0}}), HasSubstr("num_hidden_layers is 0, expected 1 to"));
  EXPECT_THAT(refusal("llama", {{"vocab_size", int64_t{1} << 60}}), HasSubstr("vocab_size"));
  EXPECT_THAT(refusal("llama", {{"rms_norm_eps", -1}}), HasSubstr("rms_norm_eps is -1"));
  EXPECT_THAT(refusal("llama", {{"rms_norm_eps", "1e-5"}}), HasSubstr("expected a number"));
  EXPECT_THAT(refusal("llama", {{"rope_theta", 0}}), HasSubstr("rope_theta"));
  EXPECT_THAT(refusal("llama", {{"mlp_bias", 1}}), HasSubstr("expected true or false"));
  EXPECT_THAT(refusal("llama", {{"eos_token_id", "</s>"}}), HasSubstr("expected an id"));
}

TEST(ModelConfig, a_misspelt_key_is_an_error_and_a_foreign_one_a_note) {
  EXPECT_THAT(refusal("llama", {{"num_hidden_layer", 2}}), HasSubstr("did you mean \"num_hidden_layers\"?"));
  EXPECT_THAT(refusal("gpt2", {{"n_embed", 64}}), HasSubstr("did you mean \"n_embd\"?"));
  EXPECT_THAT(read("llama", {{"sliding_window_pattern", 4}}).notes,
              ElementsAre("sliding_window_pattern is not a key of llama: not used"));
}

TEST(ModelConfig, a_key_that_does_not_matter_is_no_error_by_its_spelling) {
  EXPECT_THAT(
      read("llama", {{"_num_labels", 2}, {"_commit_hsh", "x"}, {"_attn_implementation_internal", "sdpa"}}).notes,
      testing::IsEmpty());
  EXPECT_THAT(read("llama", {{"num_label", 2}}).notes, ElementsAre("num_label is not a key of llama: not used"));
  EXPECT_THAT(refusal("llama", {{"vocab_sizes", 2}}), HasSubstr("did you mean \"vocab_size\"?"));
}

TEST(ModelConfig, the_head_of_another_task_is_dropped_and_that_is_said) {
  EXPECT_THAT(read("llama", {{"architectures", {"LlamaForTokenClassification"}}, {"num_labels", 2}}).notes,
              ElementsAre("LlamaForTokenClassification: its head for TokenClassification is dropped; the model "
                          "predicts tokens, as LlamaForCausalLM does"));
  for (const char* name : {"LlamaForCausalLM", "GPT2LMHeadModel", "LlamaModel"})
    EXPECT_THAT(read("llama", {{"architectures", {name}}}).notes, testing::IsEmpty()) << name;
}

TEST(ModelConfig, quantised_weights_are_loaded_if_their_method_is_read_and_else_refused_by_name) {
  for (const std::string& family : ModelConfig::families()) {
    const ModelConfig config = read(family, {{"quantization_config", {{"quant_method", "gptq"}, {"bits", 4}}}});
    EXPECT_GT(config.parameter_count(), 0);
    EXPECT_THAT(config.notes, testing::Contains(HasSubstr("quantization_config (\"gptq\")")));
    EXPECT_NO_THROW(config.require_loadable("folder"));
  }
  const ModelConfig other = read("llama", {{"quantization_config", {{"quant_method", "aqlm"}}}});
  EXPECT_THAT(message_of<ConfigError>([&] { other.require_loadable("folder"); }),
              HasSubstr("folder: quantization_config (\"aqlm\"): weights of this method are not read; read are gptq"));
  EXPECT_NO_THROW(read("llama", json::object()).require_loadable("folder"));
}

TEST(ModelConfig, dropout_is_noted_not_applied) {
  EXPECT_THAT(read("gpt2", {{"attn_pdrop", 0.1}, {"resid_pdrop", 0.0}}).notes,
              ElementsAre("attn_pdrop is 0.1: dropout is not applied"));
  EXPECT_THAT(read("llama", {{"attention_dropout", 0.25}}).notes, ElementsAre(HasSubstr("attention_dropout is 0.25")));
}

TEST(ModelConfig, a_written_config_reads_back_the_same) {
  for (const char* name : golden_families()) {
    SCOPED_TRACE(name);
    const ModelConfig config = ModelConfig::from_folder(golden(name));
    const std::string text = config.to_hf_json(DType::bf16).dump();
    EXPECT_EQ(ModelConfig::from_json(json::parse(text)), config) << text;

    // What transformers wrote and what is written here agree on every key that both have.
    json original;
    std::ifstream(golden(name) / "config.json") >> original;
    // "type" is the older name of "rope_type"; some files hold both.
    if (original.value("rope_scaling", json()).contains("rope_type")) original["rope_scaling"].erase("type");
    const json written = json::parse(text);
    for (const auto& [key, value] : written.items()) {
      if (original.contains(key) && !original[key].is_null()) {
        EXPECT_EQ(original[key], value) << key;
      }
    }
    EXPECT_TRUE(original.contains("architectures"));
  }
}

json file_of(const std::filesystem::path& path) {
  json content;
  std::ifstream(path) >> content;
  return content;
}

/// What transformers 5.24 wrote for the golden folder.
json by_transformers_5(std::string_view name) {
  return file_of(std::filesystem::path(test::golden_root()) / "configs" /
                 (std::filesystem::path(name).filename().string() + ".json"));
}

TEST(ModelConfig, both_spellings_of_a_family_are_read_alike) {
  for (const char* name : all_golden()) {
    SCOPED_TRACE(name);
    const json newer = by_transformers_5(name);
    EXPECT_EQ(newer["transformers_version"], "5.24.0");
    EXPECT_EQ(ModelConfig::from_json(newer), ModelConfig::from_folder(golden(name)));
  }
}

/// transformers 5 refuses a number of another kind, and transformers 4 warns of some.
TEST(ModelConfig, what_is_written_is_of_the_types_that_transformers_writes) {
  const auto kind = [](const json& value) {
    return value.is_number_integer() ? "an integer" : value.is_number() ? "a number" : value.type_name();
  };
  // The numbers of gpt_neox were given as integers, and are declared as numbers.
  const std::set<std::string> numbers{"rope_theta", "rotary_emb_base"};
  for (const char* name : all_golden()) {
    SCOPED_TRACE(name);
    const json written = json::parse(ModelConfig::from_folder(golden(name)).to_hf_json(DType::f32).dump()).flatten();
    for (const json& original : {file_of(golden(name) / "config.json"), by_transformers_5(name)}) {
      const json values = original.flatten();
      for (const auto& [path, value] : written.items()) {
        const std::string key = path.substr(path.rfind('/') + 1);
        if (!values.contains(path) || values[path].is_null() || value.is_null()) continue;
        EXPECT_STREQ(kind(value), numbers.contains(key) ? "a number" : kind(values[path])) << path;
      }
    }
  }
  // The scalar is a root's square, which is whole but for rounding.
  for (const char* family : {"gemma2", "gemma3_text"})
    for (const int scalar : {24, 32, 144, 168, 224, 256})
      EXPECT_EQ(
          read(family, {{"query_pre_attn_scalar", scalar}}).to_hf_json(DType::f32)["query_pre_attn_scalar"].dump(),
          std::to_string(scalar));
}

TEST(ModelConfig, options_of_one_family_survive_an_export) {
  for (const char* name : test::kGoldenVariants) {
    const ModelConfig config = ModelConfig::from_folder(golden(name));
    EXPECT_EQ(ModelConfig::from_json(json::parse(config.to_hf_json(DType::f32).dump())), config) << name;
    EXPECT_THAT(config.notes, IsEmpty()) << name;
  }
  EXPECT_DOUBLE_EQ(ModelConfig::from_folder(golden("open/gpt2_by_layer")).attention_scale_of(2),
                   1 / (std::sqrt(8.0) * 3));
}

TEST(ModelConfig, heads_of_another_size_than_their_share_survive_an_export) {
  for (const char* family : {"granite", "llama", "olmoe", "smollm3", "starcoder2"}) {
    const ModelConfig config = read(family, {{"head_dim", 64}});
    EXPECT_EQ(ModelConfig::from_json(json::parse(config.to_hf_json(DType::f32).dump())).head_dim, 64) << family;
  }
}

TEST(ModelConfig, heads_that_rotate_whole_survive_an_export) {
  for (const std::string& family : ModelConfig::families()) {
    SCOPED_TRACE(family);
    ModelConfig config = read(family, json::object());
    if (config.positions != PositionKind::rope || config.latent) continue;
    config.rope.rotary_dim = config.head_dim;
    EXPECT_EQ(ModelConfig::from_json(json::parse(config.to_hf_json(DType::f32).dump())).rope.rotary_dim,
              config.head_dim);
  }
}

TEST(ModelConfig, the_defaults_of_every_family_are_written_and_read_back) {
  for (const std::string& family : ModelConfig::families()) {
    SCOPED_TRACE(family);
    ModelConfig config = read(family, json::object());
    config.notes.clear();
    EXPECT_EQ(ModelConfig::from_json(json::parse(config.to_hf_json(DType::f32).dump())), config);
  }
}

TEST(ModelConfig, kimi_k2_is_deepseek_v3_by_another_name) {
  const ModelConfig config = read("kimi_k2", {{"num_hidden_layers", 2}});
  EXPECT_EQ(config, read("deepseek_v3", {{"num_hidden_layers", 2}}));
  EXPECT_EQ(config.to_hf_json(DType::bf16)["model_type"], "deepseek_v3");
}

/// Mixtures: Flops.released_mixtures_have_the_total_and_active_parameters_that_their_cards_name.
TEST(ModelConfig, released_models_have_the_parameters_that_their_cards_name) {
  EXPECT_EQ(read("gemma", json::object()).parameter_count(), 8537680896);       // Gemma 7B
  EXPECT_EQ(read("gemma2", json::object()).parameter_count(), 2614341888);      // Gemma 2 2B
  EXPECT_EQ(read("phi3", json::object()).parameter_count(), 3821079552);        // Phi-3 mini
  EXPECT_EQ(read("gpt_neox", json::object()).parameter_count(), 20554567680);   // GPT-NeoX 20B
  EXPECT_EQ(read("ernie4_5", json::object()).parameter_count(), 360748032);     // ERNIE 4.5 0.3B
  EXPECT_EQ(read("smollm3", json::object()).parameter_count(), 3075098624);     // SmolLM3 3B
  EXPECT_EQ(read("starcoder2", json::object()).parameter_count(), 3030371328);  // StarCoder2 3B
  EXPECT_EQ(read("glm4", json::object()).parameter_count(), 9400279040);        // GLM-4 9B
  EXPECT_EQ(read("olmo3", json::object()).parameter_count(), 6888624128);       // OLMo 3 7B
  EXPECT_EQ(read("lfm2", {{"hidden_size", 2048},                                // LFM2 1.2B, as its file says it
                          {"num_hidden_layers", 16},
                          {"block_ff_dim", 12288},
                          {"full_attn_idxs", {2, 5, 8, 10, 12, 14}}})
                .parameter_count(),
            1170340608);
  EXPECT_EQ(read("ernie4_5_moe", json::object()).parameter_count(), 21825437888);  // ERNIE 4.5 21B-A3B
  EXPECT_EQ(read("phi", json::object()).parameter_count(), 1418270720);            // Phi 1.5
  EXPECT_EQ(read("opt", json::object()).parameter_count(), 125239296);             // OPT 125M
  EXPECT_EQ(read("opt", {{"hidden_size", 1024},
                         {"num_hidden_layers", 24},
                         {"num_attention_heads", 16},
                         {"ffn_dim", 4096},
                         {"word_embed_proj_dim", 512},
                         {"do_layer_norm_before", false}})
                .parameter_count(),
            331196416);                                                         // OPT 350M
  EXPECT_EQ(read("ministral3", json::object()).parameter_count(), 8489553920);  // Ministral 3 8B
  // As transformers counts their defaults.
  EXPECT_EQ(read("cohere2", json::object()).parameter_count(), 34980831232);
  EXPECT_EQ(read("exaone4", json::object()).parameter_count(), 9429069824);
  EXPECT_EQ(read("granite", json::object()).parameter_count(), 6738415616);
  EXPECT_EQ(read("olmoe", json::object()).parameter_count(), 13361612800);
  EXPECT_EQ(read("seed_oss", json::object()).parameter_count(), 28921040896);
}

TEST(ModelConfig, experts_and_latent_attention_reach_their_fields) {
  const ModelConfig qwen =
      read("qwen2_moe", {{"num_hidden_layers", 4}, {"decoder_sparse_step", 2}, {"mlp_only_layers", {3}}});
  EXPECT_EQ(qwen.experts->layers, (std::vector<bool>{false, true, false, false}));
  EXPECT_TRUE(qwen.experts->shared_gate);
  EXPECT_FALSE(qwen.experts->auxiliary_loss);
  EXPECT_TRUE(read("mixtral", {{"output_router_logits", true}}).experts->auxiliary_loss);
  const ModelConfig deepseek = read("deepseek_v3", {{"num_hidden_layers", 4}});
  EXPECT_EQ(deepseek.experts->layers, (std::vector<bool>{false, false, false, true}));
  EXPECT_EQ(deepseek.head_dim, 192);
  EXPECT_EQ(deepseek.rope.rotary_dim, 64);
  EXPECT_TRUE(deepseek.rope.interleaved);
  EXPECT_FALSE(read("deepseek_v3", {{"num_hidden_layers", 4}, {"rope_interleave", false}}).rope.interleaved);
  EXPECT_EQ(read("deepseek_v2", {{"q_lora_rank", nullptr}}).latent->q_rank, 0);
  for (const char* family : {"mixtral", "qwen2_moe", "qwen3_moe", "gpt_oss", "deepseek_v2"})
    for (const char* name : {"num_experts", "num_local_experts"})
      EXPECT_EQ(read(family, {{name, 32}}).experts->num_experts, 32) << family << " " << name;
  EXPECT_THAT(refusal("qwen3_moe", {{"num_experts", 8}, {"num_local_experts", 4}}),
              HasSubstr("num_experts and num_local_experts name the same number and differ"));
  EXPECT_THAT(refusal("mixtral", {{"num_experts_per_tok", 9}}), HasSubstr("more than the 8 experts"));
  EXPECT_THAT(refusal("deepseek_v2", {{"topk_method", "noaux_tc"}}), HasSubstr("topk_method"));
  EXPECT_THAT(refusal("deepseek_v3", {{"n_group", 7}}), HasSubstr("7 groups of 256"));
  EXPECT_THAT(refusal("gpt_oss", {{"output_router_logits", true}}), HasSubstr("output_router_logits"));
}

TEST(ModelConfig, windows_follow_the_rules_of_their_family) {
  const auto windows = [](const std::string& family, json changes) {
    changes["num_hidden_layers"] = 4;
    return read(family, changes).sliding_windows;
  };
  EXPECT_THAT(windows("mistral", json::object()), ElementsAre(4096, 4096, 4096, 4096));
  EXPECT_THAT(windows("mistral", {{"sliding_window", nullptr}}), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(windows("phi3", json::object()), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(windows("phi3", {{"sliding_window", 9}}), ElementsAre(9, 9, 9, 9));
  EXPECT_THAT(windows("qwen2", {{"sliding_window", 9}, {"max_window_layers", 1}}), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(windows("qwen2", {{"sliding_window", 9}, {"max_window_layers", 1}, {"use_sliding_window", true}}),
              ElementsAre(0, 9, 9, 9));
  EXPECT_THAT(windows("gemma2", {{"sliding_window", 7}}), ElementsAre(7, 0, 7, 0));
  EXPECT_THAT(windows("qwen2_moe", {{"sliding_window", 0}, {"use_sliding_window", false}}), ElementsAre(0, 0, 0, 0));
  const json used{{"sliding_window", 9}, {"use_sliding_window", true}};
  EXPECT_THAT(windows("qwen2_moe", used), ElementsAre(9, 9, 9, 9));
  json chosen = used;
  chosen["layer_types"] = {"sliding_attention", "full_attention", "sliding_attention", "full_attention"};
  EXPECT_THAT(windows("qwen2_moe", chosen), ElementsAre(9, 0, 9, 0));
  EXPECT_THAT(windows("gemma3_text", {{"sliding_window", 7}, {"sliding_window_pattern", 3}}), ElementsAre(7, 7, 0, 7));
}

TEST(ModelConfig, a_head_is_tied_by_default_where_transformers_says_so) {
  for (const std::string& family : ModelConfig::families()) {
    const std::set<std::string> others{"cohere2", "ernie4_5", "ernie4_5_moe", "gpt2",
                                       "lfm2",    "opt",      "smollm3",      "starcoder2"};
    const bool tied = others.contains(family) || family.starts_with("gemma");
    EXPECT_EQ(read(family, json::object()).tie_word_embeddings, tied) << family;
    EXPECT_EQ(read(family, {{"tie_word_embeddings", !tied}}).tie_word_embeddings, !tied) << family;
  }
}

TEST(ModelConfig, rope_parameters_of_transformers_5_mean_what_the_keys_of_4_mean) {
  const json yarn{{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 512}};
  json both = yarn;
  both["rope_theta"] = 5e5;
  EXPECT_EQ(read("llama", {{"rope_parameters", both}}), read("llama", {{"rope_scaling", yarn}, {"rope_theta", 5e5}}));
  json legacy = yarn;
  legacy["type"] = "yarn";
  legacy.erase("rope_type");
  EXPECT_EQ(read("llama", {{"rope_scaling", legacy}}), read("llama", {{"rope_scaling", yarn}}));
  EXPECT_EQ(read("gemma3_text", {{"rope_parameters",
                                  {{"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 1e6}}},
                                   {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 1e3}}}}}}),
            read("gemma3_text",
                 {{"rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}}, {"rope_local_base_freq", 1e3}}));
  EXPECT_EQ(read("gpt_neox", {{"rotary_pct", 0.5}, {"rotary_emb_base", 25000}}),
            read("gpt_neox", {{"partial_rotary_factor", 0.5}, {"rope_theta", 25000}}));
}

TEST(ModelConfig, phi3_reads_longrope_under_its_older_names_and_its_default_length) {
  const std::vector<double> ones(48, 1.0), twos(48, 2.0);
  const auto longrope = [&](const char* type) {
    return read("phi3", {{"max_position_embeddings", 131072},
                         {"rope_scaling", {{"type", type}, {"short_factor", ones}, {"long_factor", twos}}}});
  };
  const ModelConfig config = longrope("longrope");
  EXPECT_EQ(config.rope.kind, RopeKind::longrope);
  EXPECT_EQ(config.rope.original_max_positions, 4096);
  EXPECT_EQ(config.rope.factor, 32);
  EXPECT_EQ(config, longrope("su"));
  EXPECT_EQ(config, longrope("yarn"));
}

TEST(ModelConfig, a_folder_without_a_readable_config_is_an_io_error) {
  test::TempFolder folder;
  EXPECT_THAT(message_of<IoError>([&] { ModelConfig::from_folder(folder.path()); }), HasSubstr("config.json"));
  folder.write("config.json", "{");
  EXPECT_THAT(message_of<IoError>([&] { ModelConfig::from_folder(folder.path()); }), HasSubstr("not valid JSON"));
}

}  // namespace
}  // namespace nought::config_test
