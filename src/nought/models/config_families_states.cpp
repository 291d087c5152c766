// The families with layers that keep a state along a sequence. Defaults: those of transformers 5.24.
#include <algorithm>

#include "nought/base/json.h"
#include "nought/base/math.h"
#include "nought/kernels/ops/short_conv.h"
#include "nought/models/config_common.h"
#include "nought/models/config_experts.h"
#include "nought/models/config_families.h"

namespace nought {

namespace {

constexpr const char* kAttends = "full_attention";

/// layer_types: `kind` has another name there, and layers that are not of it attend. Without the key `otherwise` says
/// which are.
template <class Otherwise>
void read_layer_kinds(ConfigReader& reader, ModelConfig& config, LayerKind kind, const char* name,
                      const Otherwise& otherwise) {
  const Json* types = reader.value("layer_types");
  require<ConfigError>(!types || (types->is_array() && std::ssize(*types) == config.num_layers),
                       "{}: layer_types must be a list of {} entries, one for each layer", reader.source(),
                       config.num_layers);
  for (int64_t i = 0; i < config.num_layers; ++i) {
    bool attends = types == nullptr && otherwise(i);
    if (types) {
      const Json& type = (*types)[static_cast<size_t>(i)];
      require<ConfigError>(type == name || type == kAttends, "{}: layer_types[{}] is {}, supported are {} and {}",
                           reader.source(), i, type.dump(), name, kAttends);
      attends = type == kAttends;
    }
    config.layer_kinds.push_back(attends ? LayerKind::attention : kind);
  }
  if (!config.keeps_states()) config.layer_kinds.clear();
}

void write_layer_kinds(const ModelConfig& config, OrderedJson& json, const char* name) {
  json["layer_types"] = OrderedJson::array();
  for (int64_t i = 0; i < config.num_layers; ++i)
    json["layer_types"].push_back(config.kind_of(i) == LayerKind::attention ? kAttends : name);
}

// --- lfm2 ---

int64_t width_of(ConfigReader& reader, const DerivedWidth& derived) {
  const double scaled = derived.factor * static_cast<double>(2 * derived.written / 3);
  require<ConfigError>(scaled <= static_cast<double>(kMaxWidth), "{}: block_ffn_dim_multiplier is {}, too large",
                       reader.source(), derived.factor);
  return std::max<int64_t>(round_up(static_cast<int64_t>(scaled), derived.multiple), 1);
}

void read_width(ConfigReader& reader, ModelConfig& config) {
  config.intermediate_size = reader.size("block_ff_dim", config.intermediate_size, kMaxWidth);
  const DerivedWidth derived{.written = config.intermediate_size,
                             .factor = read_positive(reader, "block_ffn_dim_multiplier", 1),
                             .multiple = reader.size("block_multiple_of", 256, kMaxWidth)};
  if (!reader.boolean("block_auto_adjust_ff_dim").value_or(true)) return;
  config.derived_width = derived;
  config.intermediate_size = width_of(reader, derived);
}

void write_width(const ModelConfig& config, OrderedJson& json) {
  json["block_auto_adjust_ff_dim"] = config.derived_width.has_value();
  if (!config.derived_width) return;
  json["intermediate_size"] = config.derived_width->written;
  json["block_ffn_dim_multiplier"] = config.derived_width->factor;
  json["block_multiple_of"] = config.derived_width->multiple;
}

void read_lfm2(ConfigReader& reader, ModelConfig& config) {
  read_llama_like(reader, config, {65536, 2560, 12288, 32, 32, 8, 0, 128000, 1e-5, 1e6, true});
  config.norm_eps = reader.non_negative("norm_eps", 1e-5);
  config.tie_word_embeddings = reader.boolean("tie_embedding").value_or(config.tie_word_embeddings);
  read_width(reader, config);
  config.qk_norm = QkNorm::per_head;
  config.short_conv = ShortConvConfig{.taps = reader.size("conv_L_cache", 3, kMostTaps),
                                      .bias = reader.boolean("conv_bias").value_or(false)};
  const bool given = reader.value("full_attn_idxs") != nullptr;
  const std::vector<int64_t> attending = reader.ids("full_attn_idxs");
  read_layer_kinds(reader, config, LayerKind::short_conv, "conv",
                   [&](int64_t i) { return !given || std::ranges::count(attending, i) > 0; });
  // What the files of the hub say once more, by other names.
  reader.ignore({"block_dim", "block_mlp_init_scale", "block_norm_eps", "block_out_init_scale", "block_use_swiglu",
                 "block_use_xavier_init", "conv_dim", "conv_dim_out", "conv_use_xavier_init", "num_heads", "theta",
                 "use_pos_enc"});
}

void write_lfm2(const ModelConfig& config, OrderedJson& json) {
  write_llama_like(config, json);
  for (const char* key : {"rms_norm_eps", "hidden_act", "attention_dropout"}) json.erase(key);
  json["norm_eps"] = config.norm_eps;
  write_width(config, json);
  json["conv_L_cache"] = config.short_conv->taps;
  json["conv_bias"] = config.short_conv->bias;
  write_layer_kinds(config, json, "conv");
}

// --- qwen3_next ---

/// The gated delta rule in most layers, and a gate on what the others attend.
void read_delta(ConfigReader& reader, ModelConfig& config, bool grouped) {
  DeltaConfig delta;
  delta.grouped = grouped;
  delta.shape = {.key_heads = reader.size("linear_num_key_heads", 16, kMaxWidth),
                 .value_heads = reader.size("linear_num_value_heads", 32, kMaxWidth),
                 .key_dim = reader.size("linear_key_head_dim", 128, kMaxWidth),
                 .value_dim = reader.size("linear_value_head_dim", 128, kMaxWidth)};
  delta.taps = reader.size("linear_conv_kernel_dim", 4, kMostTaps);
  require<ConfigError>(delta.shape.value_heads % delta.shape.key_heads == 0,
                       "{}: linear_num_value_heads {} is no multiple of linear_num_key_heads {}", reader.source(),
                       delta.shape.value_heads, delta.shape.key_heads);
  config.delta = delta;
  const int64_t interval = reader.size("full_attention_interval", 4, kMaxLayers);
  read_layer_kinds(reader, config, LayerKind::delta, "linear_attention",
                   [&](int64_t i) { return (i + 1) % interval == 0; });
  config.qkv_bias = config.output_bias = reader.boolean("attention_bias").value_or(false);
  config.qk_norm = QkNorm::per_head;
  config.norm_weight_offset = 1;
  config.output_gate = true;
  reader.only("hidden_act", "silu", "the convolutions of its layers have no other");
}

void write_delta(const ModelConfig& config, OrderedJson& json) {
  const DeltaShape& shape = config.delta->shape;
  write_rotary_fraction(config, json);
  json["linear_num_key_heads"] = shape.key_heads;
  json["linear_num_value_heads"] = shape.value_heads;
  json["linear_key_head_dim"] = shape.key_dim;
  json["linear_value_head_dim"] = shape.value_dim;
  json["linear_conv_kernel_dim"] = config.delta->taps;
  json["attention_bias"] = config.qkv_bias;
  write_layer_kinds(config, json, "linear_attention");
}

void read_qwen3_next(ConfigReader& reader, ModelConfig& config) {
  read_llama_like(reader, config,
                  {.vocab_size = 151936,
                   .hidden_size = 2048,
                   .intermediate_size = 5632,
                   .num_layers = 48,
                   .num_heads = 16,
                   .num_kv_heads = 2,
                   .head_dim = 256,
                   .max_positions = 32768,
                   .rotary_fraction = 0.25});
  read_qwen_moe(reader, config, {.num_experts = 512, .top_k = 10, .intermediate_size = 512});
  config.experts->rule.normalise = reader.boolean("norm_topk_prob").value_or(true);
  config.experts->shared_intermediate_size = reader.size("shared_expert_intermediate_size", 512, kMaxWidth);
  config.experts->shared_gate = true;
  read_delta(reader, config, /*grouped=*/true);
}

void write_qwen3_next(const ModelConfig& config, OrderedJson& json) {
  write_qwen_moe(config, json);
  for (const char* key : {"sliding_window", "use_sliding_window"}) json.erase(key);
  json["shared_expert_intermediate_size"] = config.experts->shared_intermediate_size;
  write_delta(config, json);
}

// --- qwen3_5_text, qwen3_5_moe_text ---

void read_qwen3_5(ConfigReader& reader, ModelConfig& config) {
  read_llama_like(reader, config,
                  {.vocab_size = 248320,
                   .hidden_size = 4096,
                   .intermediate_size = 12288,
                   .num_layers = 32,
                   .num_heads = 16,
                   .num_kv_heads = 4,
                   .head_dim = 256,
                   .max_positions = 32768,
                   .rotary_fraction = 0.25});
  read_delta(reader, config, /*grouped=*/false);
}

void write_qwen3_5(const ModelConfig& config, OrderedJson& json) {
  write_llama_like(config, json);
  write_delta(config, json);
}

void read_qwen3_5_moe(ConfigReader& reader, ModelConfig& config) {
  read_llama_like(reader, config,
                  {.vocab_size = 248320,
                   .hidden_size = 2048,
                   .intermediate_size = 512,
                   .num_layers = 40,
                   .num_heads = 16,
                   .num_kv_heads = 2,
                   .head_dim = 256,
                   .max_positions = 32768,
                   .rotary_fraction = 0.25});
  ExpertsConfig experts = read_experts(reader, config, {.num_experts = 256, .top_k = 8, .intermediate_size = 512});
  experts.rule.normalise = true;
  experts.shared_intermediate_size = reader.size("shared_expert_intermediate_size", 512, kMaxWidth);
  experts.shared_gate = true;
  read_auxiliary_loss(reader, experts, 0.001);
  config.experts = experts;
  read_delta(reader, config, /*grouped=*/false);
}

void write_qwen3_5_moe(const ModelConfig& config, OrderedJson& json) {
  const ExpertsConfig& experts = *config.experts;
  write_qwen3_5(config, json);
  json["num_experts"] = experts.num_experts;
  json["num_experts_per_tok"] = experts.rule.top_k;
  json["moe_intermediate_size"] = experts.intermediate_size;
  json["shared_expert_intermediate_size"] = experts.shared_intermediate_size;
  write_auxiliary_loss(experts, json);
}

constexpr Family kStateFamilies[] = {{"lfm2", "Lfm2ForCausalLM", read_lfm2, write_lfm2},
                                     {"qwen3_5_moe_text", "Qwen3_5MoeForCausalLM", read_qwen3_5_moe, write_qwen3_5_moe},
                                     {"qwen3_5_text", "Qwen3_5ForCausalLM", read_qwen3_5, write_qwen3_5},
                                     {"qwen3_next", "Qwen3NextForCausalLM", read_qwen3_next, write_qwen3_next}};

}  // namespace

std::span<const Family> state_families() { return kStateFamilies; }

}  // namespace nought
