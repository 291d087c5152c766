// Families with experts as deepseek has them: some layers without, shared ones beside them, and a choice that is
// corrected. Defaults: those of transformers 4.57, or of 5.24 for newer ones.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "nought/base/json.h"
#include "nought/models/config_common.h"
#include "nought/models/config_experts.h"
#include "nought/models/config_families.h"

namespace nought {

namespace {

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
  reader.ignore({"head_dim", "qk_head_dim", "ep_size", "seq_aux", "aux_loss_alpha"});
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

// --- glm4_moe, minimax_m2, ernie4_5_moe ---

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
}

void write_glm4_moe(const ModelConfig& config, OrderedJson& json) {
  write_llama_like(config, json);
  write_rotary_fraction(config, json);
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

/// Every moe_layer_interval-th layer from moe_layer_start_index to moe_layer_end_index has experts.
void read_expert_interval(ConfigReader& reader, const ModelConfig& config, ExpertsConfig& experts) {
  const int64_t start = reader.integer("moe_layer_start_index").value_or(1),
                end = reader.integer("moe_layer_end_index").value_or(-1),
                interval = reader.size("moe_layer_interval", 1, kMaxLayers);
  for (int64_t i = 0; i < config.num_layers; ++i)
    experts.layers[static_cast<size_t>(i)] = (i + 1) % interval == 0 && i >= start && (end == -1 || i <= end);
  require<ConfigError>(std::ranges::count(experts.layers, true) > 0,
                       "{}: no layer has experts: moe_layer_start_index is {}, moe_layer_end_index {}, "
                       "moe_layer_interval {}",
                       reader.source(), start, end, interval);
}

void write_expert_interval(const ExpertsConfig& experts, OrderedJson& json) {
  const auto begin = experts.layers.begin(), first = std::find(begin, experts.layers.end(), true),
             second = std::find(first + 1, experts.layers.end(), true);
  const auto last = std::find(experts.layers.rbegin(), experts.layers.rend(), true).base() - 1;
  json["moe_layer_start_index"] = first - begin;
  json["moe_layer_end_index"] = last - begin;
  json["moe_layer_interval"] = second == experts.layers.end() ? 1 : second - first;
}

void read_ernie4_5_moe(ConfigReader& reader, ModelConfig& config) {
  read_llama_like(reader, config, {103424, 2560, 12288, 28, 20, 4, 0, 131072, 1e-5, 500000, true});
  config.rope.interleaved = true;
  ExpertsConfig experts = read_experts(reader, config,
                                       {.num_experts = 64,
                                        .top_k = 6,
                                        .intermediate_size = 1536,
                                        .count_key = "moe_num_experts",
                                        .choice_key = "moe_k"});
  read_expert_interval(reader, config, experts);
  const int64_t shared = reader.integer("moe_num_shared_experts").value_or(2);
  require<ConfigError>(0 <= shared && shared <= kMaxWidth, "{}: moe_num_shared_experts is {}", reader.source(), shared);
  experts.shared_intermediate_size = shared * experts.intermediate_size;
  experts.rule.normalise = true;
  experts.choice_bias = experts.choice_bias_row = true;
  config.experts = experts;
  reader.only("use_bias", false, "experts have no biases");
  reader.only("moe_norm_min", 1e-12, "weights are divided by their sum, however small it is");
  reader.only("output_router_logits", false, "ernie4_5_moe has no auxiliary loss here");
  reader.ignore({"router_aux_loss_coef"});
}

void write_ernie4_5_moe(const ModelConfig& config, OrderedJson& json) {
  const ExpertsConfig& experts = *config.experts;
  write_llama_like(config, json);
  json.update({{"use_bias", false},
               {"moe_num_experts", experts.num_experts},
               {"moe_k", experts.rule.top_k},
               {"moe_intermediate_size", experts.intermediate_size},
               {"moe_num_shared_experts", experts.shared_intermediate_size / experts.intermediate_size}});
  write_expert_interval(experts, json);
}

// --- llama4_text ---

/// Layers that rotate attend in chunks, the others scale their queries.
void read_llama4_attention(ConfigReader& reader, ModelConfig& config) {
  config.qkv_bias = config.output_bias = reader.boolean("attention_bias").value_or(false);
  config.rope.interleaved = true;
  read_unrotated_layers(reader, config);
  if (reader.boolean("use_qk_norm").value_or(true)) {
    // transformers normalises heads that have been rotated: the same, as rotations keep lengths.
    require<ConfigError>(config.rope.table_scale() == 1, "{}: use_qk_norm with a rope type that scales heads",
                         reader.source());
    config.qk_norm = QkNorm::unweighted;
  }
  config.chunked = true;
  const char* key = "attention_chunk_size";
  const int64_t chunk = reader.has(key) && !reader.value(key) ? 0 : reader.size(key, 8192, kMaxRows);
  const bool typed = reader.value("layer_types") != nullptr;
  read_layer_types(
      reader, config, chunk, [](int64_t, int64_t) { return true; }, 0);
  for (int64_t i = 0; i < config.num_layers && !typed; ++i)
    if (!config.rotates(i)) config.sliding_windows[static_cast<size_t>(i)] = 0;
  const Json* tuned = reader.value("attn_temperature_tuning");  // true, or a number as older files have it
  const bool off = tuned && (*tuned == Json(false) || *tuned == Json(0));
  const QueryScale scale{.beta = reader.number("attn_scale").value_or(0.1),
                         .length = reader.size("floor_scale", 8192, kMaxRows),
                         .shift = 1,
                         .unrotated_only = true};
  if (!off) config.query_scale = scale;
}

void read_llama4_text(ConfigReader& reader, ModelConfig& config) {
  read_llama_like(reader, config, {202048, 5120, 8192, 48, 40, 8, 128, 131072, 1e-5, 500000});
  ExpertsConfig experts = read_experts(reader, config,
                                       {.num_experts = 16,
                                        .top_k = 1,
                                        .intermediate_size = config.intermediate_size,
                                        .count_key = "num_local_experts",
                                        .width_key = "intermediate_size"});
  config.intermediate_size = reader.size("intermediate_size_mlp", 16384, kMaxWidth);
  read_llama4_attention(reader, config);
  const int64_t step = reader.size("interleave_moe_layer_step", 1, kMaxLayers);
  const bool listed = reader.value("moe_layers") != nullptr;
  const std::vector<int64_t> layers = reader.ids("moe_layers");
  for (int64_t i = 0; i < config.num_layers; ++i)
    experts.layers[static_cast<size_t>(i)] = listed ? std::ranges::count(layers, i) > 0 : (i + 1) % step == 0;
  experts.rule.scores = RouterScores::sigmoid;
  experts.scales_input = true;
  experts.storage = ExpertStorage::halves;
  experts.shared_intermediate_size = experts.intermediate_size;
  config.experts = experts;
  reader.only("num_experts_per_tok", 1, "a token's weight scales what one expert reads");
  reader.only("output_router_logits", false, "llama4_text has no auxiliary loss here");
  reader.ignore({"router_aux_loss_coef", "for_llm_compressor", "cache_implementation"});
  note_jitter(reader, config);
}

void write_llama4_text(const ModelConfig& config, OrderedJson& json) {
  const ExpertsConfig& experts = *config.experts;
  write_llama_like(config, json);
  write_layer_types(config, json);
  write_unrotated_layers(config, json);
  json.update({{"intermediate_size", experts.intermediate_size},
               {"intermediate_size_mlp", config.intermediate_size},
               {"num_local_experts", experts.num_experts},
               {"num_experts_per_tok", experts.rule.top_k},
               {"attention_bias", config.qkv_bias},
               {"use_qk_norm", config.qk_norm == QkNorm::unweighted},
               {"attn_temperature_tuning", config.query_scale.has_value()}});
  if (config.query_scale) {
    json["attn_scale"] = config.query_scale->beta;
    json["floor_scale"] = config.query_scale->length;
  }
  json["moe_layers"] = OrderedJson::array();
  for (int64_t i = 0; i < config.num_layers; ++i)
    if (config.has_experts(i)) json["moe_layers"].push_back(i);
}

constexpr Family kDeepFamilies[] = {{"deepseek_v2", "DeepseekV2ForCausalLM", read_deepseek_v2, write_deepseek_v2},
                                    {"deepseek_v3", "DeepseekV3ForCausalLM", read_deepseek_v3, write_deepseek_v3},
                                    {"ernie4_5_moe", "Ernie4_5_MoeForCausalLM", read_ernie4_5_moe, write_ernie4_5_moe},
                                    {"glm4_moe", "Glm4MoeForCausalLM", read_glm4_moe, write_glm4_moe},
                                    {"llama4_text", "Llama4ForCausalLM", read_llama4_text, write_llama4_text},
                                    {"minimax_m2", "MiniMaxM2ForCausalLM", read_minimax_m2, write_minimax_m2}};

}  // namespace

std::span<const Family> deep_families() { return kDeepFamilies; }

}  // namespace nought
