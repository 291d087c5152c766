// The families with mixtures of experts. Defaults: those of transformers 4.57.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "nought/base/json.h"
#include "nought/models/config_common.h"
#include "nought/models/config_families.h"

namespace nought {

namespace {

struct ExpertDefaults {
  int64_t num_experts, top_k, intermediate_size;
  double auxiliary_coefficient = 0.001;
  const char* count_key = "num_experts";
  const char* width_key = "moe_intermediate_size";
};

/// The number of experts, by the family's name for it or by another one: transformers 5 keeps one of them for each
/// family, and it is not always that of transformers 4.
int64_t read_expert_count(ConfigReader& reader, const ExpertDefaults& defaults) {
  const Json* known = nullptr;
  std::string name = defaults.count_key;
  for (const char* each : {defaults.count_key, "num_experts", "num_local_experts"}) {
    const Json* found = reader.value(each);
    if (!found) continue;
    require<ConfigError>(!known || *known == *found, "{}: {} and {} name the same number and differ", reader.source(),
                         name, each);
    known = found, name = each;
  }
  return reader.size(name, defaults.num_experts, kMaxWidth);
}

/// How many experts, how wide, how many each token uses; all layers have them until said otherwise.
ExpertsConfig read_experts(ConfigReader& reader, const ModelConfig& config, const ExpertDefaults& defaults) {
  ExpertsConfig experts;
  experts.num_experts = read_expert_count(reader, defaults);
  experts.intermediate_size = reader.size(defaults.width_key, defaults.intermediate_size, kMaxWidth);
  experts.rule.top_k = reader.size("num_experts_per_tok", defaults.top_k, kMaxWidth);
  require<ConfigError>(experts.rule.top_k <= experts.num_experts,
                       "{}: num_experts_per_tok {} is more than the {} experts", reader.source(), experts.rule.top_k,
                       experts.num_experts);
  experts.activation.activation = config.activation;
  experts.layers.assign(static_cast<size_t>(config.num_layers), true);
  return experts;
}

/// The loss that balances experts counts if output_router_logits, as in transformers.
void read_auxiliary_loss(ConfigReader& reader, ExpertsConfig& experts, double coefficient) {
  experts.auxiliary_loss = reader.boolean("output_router_logits").value_or(false);
  experts.auxiliary_coefficient = reader.non_negative("router_aux_loss_coef", coefficient);
}

void write_auxiliary_loss(const ExpertsConfig& experts, OrderedJson& json) {
  json["output_router_logits"] = experts.auxiliary_loss;
  json["router_aux_loss_coef"] = experts.auxiliary_coefficient;
}

void note_jitter(ConfigReader& reader, ModelConfig& config) {
  if (reader.non_negative("router_jitter_noise", 0) > 0)
    config.notes.push_back("router_jitter_noise is set: routers see no noise");
}

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

/// Which layers have experts, and whether weights are divided by their sum.
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

// --- experts as deepseek has them ---

/// Some of them in groups, shared ones, and none in the first layers. `experts` has the defaults.
void read_deep_experts(ConfigReader& reader, const ModelConfig& config, ExpertsConfig& experts, int64_t shared,
                       int64_t dense) {
  experts.rule.scaling = reader.non_negative("routed_scaling_factor", experts.rule.scaling);
  experts.shared_intermediate_size = reader.size("n_shared_experts", shared, kMaxWidth) * experts.intermediate_size;
  const int64_t first = reader.integer("first_k_dense_replace").value_or(dense);
  for (int64_t i = 0; i < config.num_layers; ++i) experts.layers[static_cast<size_t>(i)] = i >= first;
}

void write_deep_experts(const ExpertsConfig& experts, OrderedJson& json) {
  const auto dense = std::find(experts.layers.begin(), experts.layers.end(), true) - experts.layers.begin();
  json.update({{"n_routed_experts", experts.num_experts},
               {"num_experts_per_tok", experts.rule.top_k},
               {"moe_intermediate_size", experts.intermediate_size},
               {"n_shared_experts", experts.shared_intermediate_size / experts.intermediate_size},
               {"routed_scaling_factor", experts.rule.scaling},
               {"first_k_dense_replace", dense},
               {"n_group", experts.rule.num_groups},
               {"topk_group", experts.rule.kept_groups},
               {"norm_topk_prob", experts.rule.normalise}});
}

/// Experts are chosen by their sigmoid and a correction of it (arXiv 2408.15664).
void choose_by_corrected_sigmoid(ExpertsConfig& experts) {
  experts.rule.scores = RouterScores::sigmoid;
  experts.rule.group_score = GroupScore::best_two;
  experts.choice_bias = true;
}

// --- deepseek ---

/// Latent attention, and experts from layer first_k_dense_replace on, with shared ones.
void read_deepseek(ConfigReader& reader, ModelConfig& config, const LlamaDefaults& defaults,
                   const ExpertDefaults& expert_defaults, int64_t shared, int64_t dense) {
  read_llama_like(reader, config, defaults);  // head_dim is that of the rotated part
  LatentConfig latent;
  latent.q_rank =
      reader.has("q_lora_rank") && !reader.value("q_lora_rank") ? 0 : reader.size("q_lora_rank", 1536, kMaxWidth);
  latent.kv_rank = reader.size("kv_lora_rank", 512, kMaxWidth);
  latent.own_dim = reader.size("qk_nope_head_dim", 128, kMaxWidth);
  latent.shared_dim = config.head_dim;
  latent.value_dim = reader.size("v_head_dim", 128, kMaxWidth);
  latent.down_bias = config.output_bias = reader.boolean("attention_bias").value_or(false);
  config.latent = latent;
  config.num_kv_heads = config.num_heads;
  config.head_dim = latent.own_dim + latent.shared_dim;
  config.attention_scale = 1 / std::sqrt(static_cast<double>(config.head_dim));
  config.rope.interleaved = true;

  ExpertsConfig experts = read_experts(reader, config, expert_defaults);
  read_deep_experts(reader, config, experts, shared, dense);
  config.experts = experts;
  reader.only("moe_layer_freq", 1, "every layer after the first dense ones has experts");
  reader.only("mlp_bias", false, "MLPs and experts have no biases");
  reader.only("pretraining_tp", 1, "split products are not reproduced");
  reader.only("output_router_logits", false, "deepseek has no auxiliary loss here");
  reader.ignore({"head_dim", "num_mtp_layers", "qk_head_dim", "ep_size", "seq_aux", "aux_loss_alpha",
                 "num_nextn_predict_layers"});
}

void read_groups(ConfigReader& reader, ExpertsConfig& experts, int64_t groups, int64_t kept) {
  RouterRule& rule = experts.rule;
  rule.num_groups = reader.size("n_group", groups, kMaxWidth);
  rule.kept_groups = reader.size("topk_group", kept, kMaxWidth);
  require<ConfigError>(experts.num_experts % rule.num_groups == 0 && rule.kept_groups <= rule.num_groups &&
                           rule.top_k <= experts.num_experts / rule.num_groups * rule.kept_groups,
                       "{}: {} of {} groups of {} experts in all cannot give {} choices", reader.source(),
                       rule.kept_groups, rule.num_groups, experts.num_experts, rule.top_k);
}

void write_deepseek(const ModelConfig& config, OrderedJson& json) {
  const LatentConfig& latent = *config.latent;
  ModelConfig rotated = config;  // what the shared keys call head_dim is that of the rotated part
  rotated.head_dim = latent.shared_dim;
  write_llama_like(rotated, json);
  json.update({{"q_lora_rank", size_or_null(latent.q_rank)},
               {"kv_lora_rank", latent.kv_rank},
               {"qk_nope_head_dim", latent.own_dim},
               {"qk_rope_head_dim", latent.shared_dim},
               {"v_head_dim", latent.value_dim},
               {"attention_bias", latent.down_bias}});
  write_deep_experts(*config.experts, json);
}

void read_deepseek_v2(ConfigReader& reader, ModelConfig& config) {
  LlamaDefaults defaults{32000, 4096, 11008, 32, 32, 0, 64, 2048};
  defaults.head_dim_key = "qk_rope_head_dim";
  // transformers has no default for num_experts_per_tok; DeepSeek's own is 6.
  read_deepseek(reader, config, defaults,
                {.num_experts = 64, .top_k = 6, .intermediate_size = 1407, .count_key = "n_routed_experts"}, 2, 0);
  const std::string method = reader.text("topk_method").value_or("greedy");
  require<ConfigError>(method == "greedy" || method == "group_limited_greedy",
                       "{}: topk_method is \"{}\", supported are greedy and group_limited_greedy", reader.source(),
                       method);
  if (method == "group_limited_greedy") {
    read_groups(reader, *config.experts, 1, 1);
  } else {
    reader.ignore({"n_group", "topk_group"});
  }
  reader.only("scoring_func", "softmax", "routers of deepseek_v2 take the softmax");
  reader.ignore({"norm_topk_prob"});  // transformers does not read it: weights are never divided by their sum
}

void write_deepseek_v2(const ModelConfig& config, OrderedJson& json) {
  write_deepseek(config, json);
  const bool grouped = config.experts->rule.num_groups > 1;
  json["topk_method"] = grouped ? "group_limited_greedy" : "greedy";
  json["mlp_bias"] = false;
}

void read_deepseek_v3(ConfigReader& reader, ModelConfig& config) {
  LlamaDefaults defaults{129280, 7168, 18432, 61, 128, 128, 64, 4096};
  defaults.head_dim_key = "qk_rope_head_dim";
  read_deepseek(reader, config, defaults,
                {.num_experts = 256, .top_k = 8, .intermediate_size = 2048, .count_key = "n_routed_experts"}, 1, 3);
  config.experts->rule.scaling = reader.non_negative("routed_scaling_factor", 2.5);
  choose_by_corrected_sigmoid(*config.experts);
  config.experts->rule.normalise = reader.boolean("norm_topk_prob").value_or(true);
  read_groups(reader, *config.experts, 8, 4);
  config.rope.interleaved = reader.boolean("rope_interleave").value_or(true);
  if (config.rope.kind == RopeKind::yarn && config.rope.mscale_all_dim.value_or(0) != 0) {
    const double mscale = yarn_mscale(config.rope.factor, *config.rope.mscale_all_dim);
    config.attention_scale *= mscale * mscale;
  }
  reader.only("scoring_func", "sigmoid", "routers of deepseek_v3 take the sigmoid");
  reader.only("topk_method", "noaux_tc", "deepseek_v3 chooses by its correction bias");
}

void write_deepseek_v3(const ModelConfig& config, OrderedJson& json) {
  write_deepseek(config, json);
  json["rope_interleave"] = config.rope.interleaved;
  json["qk_head_dim"] = config.head_dim;
}

// --- olmoe, glm4_moe, minimax_m2 ---

void read_olmoe(ConfigReader& reader, ModelConfig& config) {
  read_llama_like(reader, config, {50304, 2048, 2048, 16, 16, 0, 0, 4096, 1e-5});
  config.qkv_bias = config.output_bias = reader.boolean("attention_bias").value_or(false);
  config.qk_norm = QkNorm::whole;
  reader.only("clip_qkv", nullptr, "queries, keys and values are not clipped");
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
  json["num_experts"] = config.experts->num_experts;
  json["num_experts_per_tok"] = config.experts->rule.top_k;
  json["norm_topk_prob"] = config.experts->rule.normalise;
  write_auxiliary_loss(*config.experts, json);
}

void read_glm4_moe(ConfigReader& reader, ModelConfig& config) {
  constexpr int64_t kReleased = 128;  // the default width does not divide by the default heads
  read_llama_like(reader, config,
                  {.vocab_size = 151552,
                   .hidden_size = 4096,
                   .intermediate_size = 10944,
                   .num_layers = 46,
                   .num_heads = 96,
                   .num_kv_heads = 8,
                   .head_dim = reader.value("hidden_size") || reader.value("num_attention_heads") ? 0 : kReleased,
                   .max_positions = 131072,
                   .norm_eps = 1e-5,
                   .rotary_fraction = 0.5});
  config.qkv_bias = reader.boolean("attention_bias").value_or(false);
  config.qk_norm = reader.boolean("use_qk_norm").value_or(false) ? QkNorm::per_head : QkNorm::none;
  ExpertsConfig experts = read_experts(
      reader, config, {.num_experts = 128, .top_k = 8, .intermediate_size = 1408, .count_key = "n_routed_experts"});
  choose_by_corrected_sigmoid(experts);
  experts.rule.normalise = reader.boolean("norm_topk_prob").value_or(true);
  read_deep_experts(reader, config, experts, 1, 1);
  read_groups(reader, experts, 1, 1);
  config.experts = experts;
  reader.only("output_router_logits", false, "glm4_moe has no auxiliary loss here");
  reader.ignore({"num_nextn_predict_layers", "num_mtp_layers"});
}

void write_glm4_moe(const ModelConfig& config, OrderedJson& json) {
  write_llama_like(config, json);
  json["attention_bias"] = config.qkv_bias;
  json["use_qk_norm"] = config.qk_norm == QkNorm::per_head;
  write_deep_experts(*config.experts, json);
}

void read_minimax_m2(ConfigReader& reader, ModelConfig& config) {
  read_llama_like(reader, config, {200064, 3072, 1536, 62, 48, 8, 128, 196608, 1e-6, 5e6});
  if (reader.value("rotary_dim")) {
    config.rope.rotary_dim = reader.size("rotary_dim", config.head_dim, config.head_dim);
    require<ConfigError>(config.rope.rotary_dim % 2 == 0, "{}: rotary_dim {} is odd", reader.source(),
                         config.rope.rotary_dim);
  }
  config.qk_norm = QkNorm::whole;
  ExpertsConfig experts = read_experts(reader, config,
                                       {.num_experts = 256,
                                        .top_k = 8,
                                        .intermediate_size = config.intermediate_size,
                                        .count_key = "num_local_experts",
                                        .width_key = "intermediate_size"});
  choose_by_corrected_sigmoid(experts);
  experts.rule.normalise = true;
  config.experts = experts;
  reader.only("output_router_logits", false, "minimax_m2 has no auxiliary loss here");
  reader.ignore({"router_aux_loss_coef"});
  note_jitter(reader, config);
}

void write_minimax_m2(const ModelConfig& config, OrderedJson& json) {
  write_llama_like(config, json);
  json["rotary_dim"] = config.rope.rotary_dim;
  json["num_local_experts"] = config.experts->num_experts;
  json["num_experts_per_tok"] = config.experts->rule.top_k;
}

constexpr Family kExpertFamilies[] = {{"deepseek_v2", "DeepseekV2ForCausalLM", read_deepseek_v2, write_deepseek_v2},
                                      {"deepseek_v3", "DeepseekV3ForCausalLM", read_deepseek_v3, write_deepseek_v3},
                                      {"glm4_moe", "Glm4MoeForCausalLM", read_glm4_moe, write_glm4_moe},
                                      {"gpt_oss", "GptOssForCausalLM", read_gpt_oss, write_gpt_oss},
                                      {"minimax_m2", "MiniMaxM2ForCausalLM", read_minimax_m2, write_minimax_m2},
                                      {"mixtral", "MixtralForCausalLM", read_mixtral, write_mixtral},
                                      {"olmoe", "OlmoeForCausalLM", read_olmoe, write_olmoe},
                                      {"qwen2_moe", "Qwen2MoeForCausalLM", read_qwen2_moe, write_qwen2_moe},
                                      {"qwen3_moe", "Qwen3MoeForCausalLM", read_qwen3_moe, write_qwen3_moe}};

}  // namespace

std::span<const Family> expert_families() { return kExpertFamilies; }

}  // namespace nought
