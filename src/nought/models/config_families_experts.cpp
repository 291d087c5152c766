// Families whose experts are chosen by a softmax, as mixtral's are. Defaults: those of transformers 4.57.
#include <algorithm>

#include <fmt/format.h>

#include "nought/base/json.h"
#include "nought/models/config_common.h"
#include "nought/models/config_experts.h"
#include "nought/models/config_families.h"

namespace nought {

namespace {

// --- mixtral ---

void read_mixtral(ConfigReader& reader, ModelConfig& config) {
  read_llama_like(reader, config, {32000, 4096, 14336, 32, 32, 8, 0, 131072, 1e-5, 1e6});
  set_sliding_windows(config, read_sliding_window(reader, 0));
  ExpertsConfig experts = read_experts(reader, config,
                                       {.num_experts = 8,
                                        .top_k = 2,
                                        .intermediate_size = config.intermediate_size,
                                        .count_key = "num_local_experts",
                                        .width_key = "intermediate_size"});
  experts.rule.normalise = true;
  read_auxiliary_loss(reader, experts, 0.001);
  config.experts = experts;
  note_jitter(reader, config);
}

void write_mixtral(const ModelConfig& config, OrderedJson& json) {
  write_llama_like(config, json);
  json["sliding_window"] = size_or_null(config.sliding_window());
  json["num_local_experts"] = config.experts->num_experts;
  json["num_experts_per_tok"] = config.experts->rule.top_k;
  write_auxiliary_loss(*config.experts, json);
}

// --- qwen2_moe, qwen3_moe ---

}  // namespace

void read_qwen_moe(ConfigReader& reader, ModelConfig& config, const ExpertDefaults& defaults) {
  ExpertsConfig experts = read_experts(reader, config, defaults);
  experts.rule.normalise = reader.boolean("norm_topk_prob").value_or(false);
  const int64_t step = reader.size("decoder_sparse_step", 1, kMaxLayers);
  const std::vector<int64_t> dense = reader.ids("mlp_only_layers");
  for (int64_t i = 0; i < config.num_layers; ++i)
    experts.layers[static_cast<size_t>(i)] =
        (i + 1) % step == 0 && std::find(dense.begin(), dense.end(), i) == dense.end();
  read_auxiliary_loss(reader, experts, defaults.auxiliary_coefficient);
  config.experts = experts;
  // One mask serves all layers of these families: a window holds for all.
  set_sliding_windows(config, read_used_window(reader));
  reader.ignore({"max_window_layers"});
}

void write_qwen_moe(const ModelConfig& config, OrderedJson& json) {
  const ExpertsConfig& experts = *config.experts;
  write_llama_like(config, json);
  json["num_experts"] = experts.num_experts;
  json["num_experts_per_tok"] = experts.rule.top_k;
  json["moe_intermediate_size"] = experts.intermediate_size;
  json["norm_topk_prob"] = experts.rule.normalise;
  json["decoder_sparse_step"] = 1;
  json["mlp_only_layers"] = OrderedJson::array();
  for (int64_t i = 0; i < config.num_layers; ++i)
    if (!config.has_experts(i)) json["mlp_only_layers"].push_back(i);
  json["sliding_window"] = size_or_null(config.sliding_window());
  json["use_sliding_window"] = config.sliding_window() > 0;
  write_auxiliary_loss(experts, json);
}

namespace {

void read_qwen2_moe(ConfigReader& reader, ModelConfig& config) {
  read_llama_like(reader, config, {151936, 2048, 5632, 24, 16, 16, 0, 32768});
  config.qkv_bias = reader.boolean("qkv_bias").value_or(true);
  read_qwen_moe(reader, config, {.num_experts = 60, .top_k = 4, .intermediate_size = 1408});
  config.experts->shared_intermediate_size = reader.size("shared_expert_intermediate_size", 5632, kMaxWidth);
  config.experts->shared_gate = true;
  // transformers 5 writes layer_types, and would choose layers for a window itself if it found none.
  read_layer_types(
      reader, config, config.sliding_window(), [](int64_t, int64_t) { return true; }, 0);
}

void write_qwen2_moe(const ModelConfig& config, OrderedJson& json) {
  write_qwen_moe(config, json);
  write_layer_types(config, json);
  json["qkv_bias"] = config.qkv_bias;
  json["shared_expert_intermediate_size"] = config.experts->shared_intermediate_size;
}

void read_qwen3_moe(ConfigReader& reader, ModelConfig& config) {
  read_llama_like(reader, config, {151936, 2048, 6144, 24, 32, 4, 0, 32768});
  config.qkv_bias = config.output_bias = reader.boolean("attention_bias").value_or(false);
  config.qk_norm = QkNorm::per_head;
  read_qwen_moe(reader, config, {.num_experts = 128, .top_k = 8, .intermediate_size = 768});
}

void write_qwen3_moe(const ModelConfig& config, OrderedJson& json) {
  write_qwen_moe(config, json);
  json["attention_bias"] = config.qkv_bias;
}

// --- gpt_oss ---

void read_gpt_oss(ConfigReader& reader, ModelConfig& config) {
  if (!reader.has("rope_scaling") && !reader.value("rope_parameters"))  // transformers' default is not plain here
    config.rope = {.kind = RopeKind::yarn, .factor = 32, .original_max_positions = 4096, .truncate = false};
  read_llama_like(reader, config, {201088, 2880, 2880, 36, 64, 8, 64, 131072, 1e-5, 150000});
  config.qkv_bias = config.output_bias = reader.boolean("attention_bias").value_or(true);
  config.attention_sinks = true;
  read_layer_types(
      reader, config, read_sliding_window(reader, 128),
      [](int64_t layer, int64_t period) { return layer % period == 0; }, 2);
  ExpertsConfig experts = read_experts(reader, config,
                                       {.num_experts = 128,
                                        .top_k = 4,
                                        .intermediate_size = config.intermediate_size,
                                        .count_key = "num_local_experts",
                                        .width_key = "intermediate_size"});
  experts.rule.scores = RouterScores::chosen_softmax;
  experts.router_bias = true;
  experts.storage = ExpertStorage::fused;
  experts.activation.clamped = true;
  experts.auxiliary_coefficient = reader.non_negative("router_aux_loss_coef", 0.9);
  config.experts = experts;
  reader.only("output_router_logits", false, "gpt_oss has no auxiliary loss here");
  reader.only("swiglu_limit", 7.0, "transformers clamps at 7");
  reader.only("swiglu_alpha", 1.702, "transformers 4 multiplies by it");
  reader.ignore({"initial_context_length", "experts_per_token", "hidden_act"});
}

void write_gpt_oss(const ModelConfig& config, OrderedJson& json) {
  write_llama_like(config, json);
  write_layer_types(config, json);
  json["attention_bias"] = config.qkv_bias;
  json["num_local_experts"] = config.experts->num_experts;
  json["num_experts_per_tok"] = config.experts->rule.top_k;
  write_auxiliary_loss(*config.experts, json);
}

// --- olmoe ---

/// What transformers clamps queries, keys and values to; null: they stay.
double read_clip(ConfigReader& reader) {
  const std::optional<double> clip = reader.number("clip_qkv");
  require<ConfigError>(!clip || (*clip > 0 && std::isfinite(*clip)),
                       "{}: clip_qkv is {}, expected a positive number or null", reader.source(), clip.value_or(0));
  return clip.value_or(0);
}

void read_olmoe(ConfigReader& reader, ModelConfig& config) {
  read_llama_like(reader, config, {50304, 2048, 2048, 16, 16, 0, 0, 4096, 1e-5});
  config.qkv_bias = config.output_bias = reader.boolean("attention_bias").value_or(false);
  config.qk_norm = QkNorm::whole;
  config.qkv_clip = read_clip(reader);
  ExpertsConfig experts = read_experts(
      reader, config,
      {.num_experts = 64, .top_k = 8, .intermediate_size = config.intermediate_size, .width_key = "intermediate_size"});
  experts.rule.normalise = reader.boolean("norm_topk_prob").value_or(false);
  read_auxiliary_loss(reader, experts, 0.01);
  config.experts = experts;
}

void write_olmoe(const ModelConfig& config, OrderedJson& json) {
  write_llama_like(config, json);
  json["attention_bias"] = config.qkv_bias;
  json["clip_qkv"] = number_or_null(config.qkv_clip);
  json["num_experts"] = config.experts->num_experts;
  json["num_experts_per_tok"] = config.experts->rule.top_k;
  json["norm_topk_prob"] = config.experts->rule.normalise;
  write_auxiliary_loss(*config.experts, json);
}

constexpr Family kExpertFamilies[] = {{"gpt_oss", "GptOssForCausalLM", read_gpt_oss, write_gpt_oss},
                                      {"mixtral", "MixtralForCausalLM", read_mixtral, write_mixtral},
                                      {"olmoe", "OlmoeForCausalLM", read_olmoe, write_olmoe},
                                      {"qwen2_moe", "Qwen2MoeForCausalLM", read_qwen2_moe, write_qwen2_moe},
                                      {"qwen3_moe", "Qwen3MoeForCausalLM", read_qwen3_moe, write_qwen3_moe}};

}  // namespace

std::span<const Family> expert_families() { return kExpertFamilies; }

}  // namespace nought
