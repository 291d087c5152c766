// The dense families that are llama with options. Defaults: those of transformers 4.57, or of 5.24 for newer ones.
#include <algorithm>

#include "nought/base/json.h"
#include "nought/models/config_common.h"
#include "nought/models/config_families.h"

namespace nought {

namespace {

// --- llama, mistral, olmo2 ---

void read_llama(ConfigReader& reader, ModelConfig& config) {
  read_llama_like(reader, config, {32000, 4096, 11008, 32, 32, 0, 0, 2048});
  config.qkv_bias = config.output_bias = reader.boolean("attention_bias").value_or(false);
  config.mlp_bias = reader.boolean("mlp_bias").value_or(false);
  reader.only("pretraining_tp", 1, "split products are not reproduced");
}

void write_llama(const ModelConfig& config, OrderedJson& json) {
  write_llama_like(config, json);
  json["attention_bias"] = config.qkv_bias;
  json["mlp_bias"] = config.mlp_bias;
}

void read_mistral(ConfigReader& reader, ModelConfig& config) {
  read_llama_like(reader, config, {32000, 4096, 14336, 32, 32, 8, 0, 131072});
  set_sliding_windows(config, read_sliding_window(reader, 4096));
}

void write_windowed(const ModelConfig& config, OrderedJson& json) {
  write_llama_like(config, json);
  json["sliding_window"] = size_or_null(config.sliding_window());
}

void read_ministral3(ConfigReader& reader, ModelConfig& config) {
  if (!reader.value("rope_scaling") && !reader.value("rope_parameters")) {  // transformers' default is not plain here
    config.rope = {
        .kind = RopeKind::yarn, .factor = 16, .original_max_positions = 16384, .mscale = 1, .mscale_all_dim = 1};
    config.query_scale = QueryScale{.beta = 0.1, .length = 16384};
  }
  read_llama_like(reader, config, {131072, 4096, 14336, 34, 32, 8, 128, 262144, 1e-5, 1e6});
  set_sliding_windows(config, read_sliding_window(reader, 0));
}

/// transformers 4 does not know this family: rope_parameters alone count.
void write_ministral3(const ModelConfig& config, OrderedJson& json) {
  write_windowed(config, json);
  OrderedJson rope = json["rope_scaling"].is_null() ? OrderedJson{{"rope_type", "default"}} : json["rope_scaling"];
  rope["rope_theta"] = config.rope.theta;
  if (config.rope.kind == RopeKind::yarn) rope["max_position_embeddings"] = config.max_positions;
  if (config.query_scale) {
    rope["llama_4_scaling_beta"] = config.query_scale->beta;
    rope["original_max_position_embeddings"] = config.query_scale->length;
  }
  json.erase("rope_theta");
  json.erase("rope_scaling");
  json["rope_parameters"] = rope;
}

void read_olmo2(ConfigReader& reader, ModelConfig& config) {
  read_llama_like(reader, config, {50304, 4096, 11008, 32, 32, 0, 0, 2048, 1e-5});
  config.qkv_bias = config.output_bias = reader.boolean("attention_bias").value_or(false);
  config.norm_placement = NormPlacement::post;
  config.qk_norm = QkNorm::whole;
}

void write_biased(const ModelConfig& config, OrderedJson& json) {
  write_llama_like(config, json);
  json["attention_bias"] = config.qkv_bias;
}

// --- qwen2, qwen3 ---

/// Layers from max_window_layers on slide, if use_sliding_window.
void read_qwen_windows(ConfigReader& reader, ModelConfig& config) {
  const int64_t window = read_used_window(reader), first = reader.integer("max_window_layers").value_or(28);
  read_layer_types(
      reader, config, window, [](int64_t layer, int64_t from) { return layer >= from; }, first);
}

void write_qwen_windows(const ModelConfig& config, OrderedJson& json) {
  write_layer_types(config, json);
  json["use_sliding_window"] = config.sliding_window() > 0;
}

void read_qwen2(ConfigReader& reader, ModelConfig& config) {
  read_llama_like(reader, config, {151936, 4096, 22016, 32, 32, 32, 0, 32768});
  config.qkv_bias = true;
  read_qwen_windows(reader, config);
}

void write_qwen2(const ModelConfig& config, OrderedJson& json) {
  write_llama_like(config, json);
  write_qwen_windows(config, json);
}

void read_qwen3(ConfigReader& reader, ModelConfig& config) {
  read_llama_like(reader, config, {151936, 4096, 22016, 32, 32, 32, 128, 32768});
  config.qkv_bias = config.output_bias = reader.boolean("attention_bias").value_or(false);
  config.qk_norm = QkNorm::per_head;
  read_qwen_windows(reader, config);
}

void write_qwen3(const ModelConfig& config, OrderedJson& json) {
  write_biased(config, json);
  write_qwen_windows(config, json);
}

// --- ernie4_5, exaone4, glm4, granite, olmo3, seed_oss, smollm3, starcoder2 ---

void read_ernie4_5(ConfigReader& reader, ModelConfig& config) {
  read_llama_like(reader, config, {103424, 1024, 3072, 18, 16, 2, 128, 131072, 1e-5, 500000, true});
  config.qkv_bias = config.output_bias = config.mlp_bias = reader.boolean("use_bias").value_or(false);
  config.rope.interleaved = true;
}

void write_ernie4_5(const ModelConfig& config, OrderedJson& json) {
  write_llama_like(config, json);
  json["use_bias"] = config.qkv_bias;
}

/// sliding_window_pattern: every n-th layer sees everything, and the older way to write it, "LLLG".
int64_t read_window_period(ConfigReader& reader, int64_t otherwise) {
  const Json* pattern = reader.value("sliding_window_pattern");
  if (pattern && pattern->is_string()) return std::ssize(pattern->get_ref<const std::string&>());
  return std::max<int64_t>(reader.integer("sliding_window_pattern").value_or(otherwise), 1);
}

/// Where some layers slide, the others know no positions.
void read_exaone4(ConfigReader& reader, ModelConfig& config) {
  read_llama_like(reader, config, {102400, 4096, 16384, 32, 32, 32, 0, 2048, 1e-5});
  config.norm_placement = NormPlacement::post;
  config.qk_norm = QkNorm::per_head;
  const int64_t window = read_sliding_window(reader, 4096), period = read_window_period(reader, 4);
  if (window == 0) {
    reader.ignore({"layer_types"});  // they all see everything, and rotate
    return;
  }
  read_layer_types(reader, config, window, all_but_every_nth, period);
  require<ConfigError>(config.sliding_window() > 0, "{}: sliding_window is set, and no layer slides: write null for it",
                       reader.source());
  for (const int64_t each : config.sliding_windows) config.unrotated.push_back(each == 0);
}

void write_exaone4(const ModelConfig& config, OrderedJson& json) {
  write_llama_like(config, json);
  write_layer_types(config, json);
}

void read_glm4(ConfigReader& reader, ModelConfig& config) {
  read_llama_like(reader, config,
                  {.vocab_size = 151552,
                   .hidden_size = 4096,
                   .intermediate_size = 13696,
                   .num_layers = 40,
                   .num_heads = 32,
                   .num_kv_heads = 2,
                   .head_dim = 128,
                   .max_positions = 131072,
                   .norm_eps = 1.5625e-7,
                   .rotary_fraction = 0.5});
  config.rope.interleaved = true;
  config.qkv_bias = reader.boolean("attention_bias").value_or(true);
  config.norm_placement = NormPlacement::pre_and_post;
  config.fused_gate_up = true;
}

void write_glm4(const ModelConfig& config, OrderedJson& json) {
  write_biased(config, json);
  write_rotary_fraction(config, json);
}

void read_granite(ConfigReader& reader, ModelConfig& config) {
  read_llama(reader, config);
  config.embedding_scale = read_positive(reader, "embedding_multiplier", 1);
  config.residual_scale = read_positive(reader, "residual_multiplier", 1);
  config.attention_scale = read_positive(reader, "attention_multiplier", 1);
  config.logit_divisor = read_positive(reader, "logits_scaling", 1);
}

void write_granite(const ModelConfig& config, OrderedJson& json) {
  write_llama(config, json);
  json["embedding_multiplier"] = config.embedding_scale;
  json["residual_multiplier"] = config.residual_scale;
  json["attention_multiplier"] = config.attention_scale;
  json["logits_scaling"] = config.logit_divisor;
}

/// olmo2 with windows; layers that slide rotate without a scaling.
void read_olmo3(ConfigReader& reader, ModelConfig& config) {
  read_olmo2(reader, config);
  read_layer_types(reader, config, read_sliding_window(reader, 4096), all_but_every_nth, 4);
  const RopeOptions local{.theta = config.rope.theta, .rotary_dim = config.rope.rotary_dim};
  require<ConfigError>(!config.local_rope || *config.local_rope == local,
                       "{}: rope_parameters.sliding_attention must be plain and have the rope_theta of full_attention",
                       reader.source());
  config.local_rope = local;
}

void write_olmo3(const ModelConfig& config, OrderedJson& json) {
  write_biased(config, json);
  write_layer_types(config, json);
}

void read_seed_oss(ConfigReader& reader, ModelConfig& config) {
  read_llama_like(reader, config, {155136, 4096, 27648, 64, 80, 8, 128, 524288});
  config.qkv_bias = reader.boolean("attention_bias").value_or(true);
  config.output_bias = reader.boolean("attention_out_bias").value_or(false);
  config.mlp_bias = reader.boolean("mlp_bias").value_or(false);
  note_dropout(reader, config, {"residual_dropout"});
  reader.only("pretraining_tp", 1, "split products are not reproduced");
}

void write_seed_oss(const ModelConfig& config, OrderedJson& json) {
  write_llama(config, json);
  json["attention_out_bias"] = config.output_bias;
  json["residual_dropout"] = 0.0;  // transformers' own default drops out a tenth; nothing was dropped here
}

void read_smollm3(ConfigReader& reader, ModelConfig& config) {
  read_llama_like(reader, config, {128256, 2048, 11008, 36, 16, 4, 0, 32768, 1e-6, 2e6, true});
  config.qkv_bias = config.output_bias = reader.boolean("attention_bias").value_or(false);
  config.mlp_bias = reader.boolean("mlp_bias").value_or(false);
  read_unrotated_layers(reader, config);
  const int64_t window = read_used_window(reader);
  const bool typed = reader.value("layer_types") != nullptr;
  read_layer_types(
      reader, config, window, [](int64_t, int64_t) { return false; }, 0);
  for (int64_t i = 0; i < config.num_layers && !typed; ++i)
    config.sliding_windows[static_cast<size_t>(i)] = config.rotates(i) ? 0 : window;
}

void write_smollm3(const ModelConfig& config, OrderedJson& json) {
  write_llama(config, json);
  write_qwen_windows(config, json);
  write_unrotated_layers(config, json);
}

void read_starcoder2(ConfigReader& reader, ModelConfig& config) {
  read_llama_like(reader, config,
                  {.vocab_size = 49152,
                   .hidden_size = 3072,
                   .intermediate_size = 12288,
                   .num_layers = 30,
                   .num_heads = 24,
                   .num_kv_heads = 2,
                   .head_dim = 0,
                   .max_positions = 4096,
                   .tied = true,
                   .activation = "gelu_pytorch_tanh"});
  config.norm = NormKind::layer;
  config.norm_eps = reader.non_negative("norm_epsilon", 1e-5);
  config.mlp = MlpKind::plain;
  config.qkv_bias = config.output_bias = config.mlp_bias = reader.boolean("use_bias").value_or(true);
  config.initializer_range = reader.non_negative("initializer_range", 0.018042);
  set_sliding_windows(config, read_sliding_window(reader, 0));
  note_dropout(reader, config, {"residual_dropout", "embedding_dropout"});
}

void write_starcoder2(const ModelConfig& config, OrderedJson& json) {
  write_windowed(config, json);
  json.erase("rms_norm_eps");
  json["norm_epsilon"] = config.norm_eps;
  json["use_bias"] = config.qkv_bias;
  json["residual_dropout"] = 0.0;
  json["embedding_dropout"] = 0.0;
}

constexpr Family kLlamaFamilies[] = {{"ernie4_5", "Ernie4_5ForCausalLM", read_ernie4_5, write_ernie4_5},
                                     {"exaone4", "Exaone4ForCausalLM", read_exaone4, write_exaone4},
                                     {"glm4", "Glm4ForCausalLM", read_glm4, write_glm4},
                                     {"granite", "GraniteForCausalLM", read_granite, write_granite},
                                     {"llama", "LlamaForCausalLM", read_llama, write_llama},
                                     {"ministral3", "Ministral3ForCausalLM", read_ministral3, write_ministral3},
                                     {"mistral", "MistralForCausalLM", read_mistral, write_windowed},
                                     {"olmo2", "Olmo2ForCausalLM", read_olmo2, write_biased},
                                     {"olmo3", "Olmo3ForCausalLM", read_olmo3, write_olmo3},
                                     {"qwen2", "Qwen2ForCausalLM", read_qwen2, write_qwen2},
                                     {"qwen3", "Qwen3ForCausalLM", read_qwen3, write_qwen3},
                                     {"seed_oss", "SeedOssForCausalLM", read_seed_oss, write_seed_oss},
                                     {"smollm3", "SmolLM3ForCausalLM", read_smollm3, write_smollm3},
                                     {"starcoder2", "Starcoder2ForCausalLM", read_starcoder2, write_starcoder2}};

}  // namespace

std::span<const Family> llama_families() { return kLlamaFamilies; }

}  // namespace nought
