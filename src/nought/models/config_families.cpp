// The dense families that differ from llama in more than options: gemma, phi3, gpt_neox, gpt2, cohere2, phi, opt.
#include "nought/models/config_families.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include <fmt/format.h>

#include "nought/base/json.h"
#include "nought/base/text.h"
#include "nought/models/config_common.h"

namespace nought {

namespace {

// --- gemma ---

/// 1 + w norms and embeddings scaled by the root of their size.
void read_gemma_like(ConfigReader& reader, ModelConfig& config, const LlamaDefaults& defaults) {
  read_llama_like(reader, config, defaults);
  config.qkv_bias = config.output_bias = reader.boolean("attention_bias").value_or(false);
  reader.only("use_bidirectional_attention", false, "attention is causal");
  config.norm_weight_offset = 1;
  config.embedding_scale = std::sqrt(static_cast<double>(config.hidden_size));
}

void read_gemma(ConfigReader& reader, ModelConfig& config) {
  const bool newer = reader.value("hidden_activation");  // wins over the older key where both are
  read_gemma_like(reader, config,
                  {256000, 3072, 24576, 28, 16, 16, 256, 8192, 1e-6, 10000, true,
                   newer ? "hidden_activation" : "hidden_act", "gelu_pytorch_tanh"});
  reader.ignore({"hidden_act"});
  if (!newer && reader.text("hidden_act") == "gelu")
    config.notes.push_back(
        "hidden_act is gelu: computed with erf, as transformers does; the first gemma checkpoints meant "
        "gelu_pytorch_tanh");
}

void write_gemma(const ModelConfig& config, OrderedJson& json) {
  write_llama_like(config, json);
  json["attention_bias"] = config.qkv_bias;
}

/// What gemma2 added and gemma3 kept.
void read_gemma2_like(ConfigReader& reader, ModelConfig& config, const LlamaDefaults& defaults, int64_t pattern) {
  read_gemma_like(reader, config, defaults);
  config.norm_placement = NormPlacement::pre_and_post;
  config.attention_scale = 1 / std::sqrt(reader.number("query_pre_attn_scalar").value_or(256));
  require<ConfigError>(std::isfinite(config.attention_scale) && config.attention_scale > 0,
                       "{}: query_pre_attn_scalar must be a positive number", reader.source());
  read_layer_types(reader, config, read_sliding_window(reader, 4096), all_but_every_nth, pattern);
}

double read_softcap(ConfigReader& reader, const char* key, double otherwise) {
  return reader.value(key) ? reader.non_negative(key, 0) : reader.has(key) ? 0 : otherwise;
}

void read_gemma2(ConfigReader& reader, ModelConfig& config) {
  read_gemma2_like(
      reader, config,
      {256000, 2304, 9216, 26, 8, 4, 256, 8192, 1e-6, 10000, true, "hidden_activation", "gelu_pytorch_tanh"}, 2);
  config.attention_softcap = read_softcap(reader, "attn_logit_softcapping", 50);
  config.logit_softcap = read_softcap(reader, "final_logit_softcapping", 30);
  reader.ignore({"hidden_act", "cache_implementation"});
}

void read_gemma3(ConfigReader& reader, ModelConfig& config) {
  const int64_t pattern =
      reader.size("sliding_window_pattern", reader.size("_sliding_window_pattern", 6, kMaxLayers), kMaxLayers);
  read_gemma2_like(
      reader, config,
      {262208, 2304, 9216, 26, 8, 4, 256, 131072, 1e-6, 1e6, true, "hidden_activation", "gelu_pytorch_tanh"}, pattern);
  config.qk_norm = QkNorm::per_head;
  config.logit_softcap = read_softcap(reader, "final_logit_softcapping", 0);
  if (!config.local_rope)
    config.local_rope = RopeOptions{.theta = reader.number("rope_local_base_freq").value_or(10000),
                                    .rotary_dim = config.rope.rotary_dim};
  reader.only("attn_logit_softcapping", nullptr, "gemma3's attention is not capped");
  reader.ignore({"hidden_act", "cache_implementation", "rope_local_base_freq"});
}

void write_gemma2(const ModelConfig& config, OrderedJson& json) {
  write_llama_like(config, json, "hidden_activation");
  write_layer_types(config, json);
  json["attention_bias"] = config.qkv_bias;
  const double scalar = 1 / (config.attention_scale * config.attention_scale);  // a whole number but for rounding
  const int64_t whole = std::llround(scalar);                                   // transformers 5 refuses 256.0
  const bool is_whole = std::abs(scalar - static_cast<double>(whole)) < 1e-9 * scalar;
  json["query_pre_attn_scalar"] = is_whole ? OrderedJson(whole) : OrderedJson(scalar);
  json["attn_logit_softcapping"] = number_or_null(config.attention_softcap);
  json["final_logit_softcapping"] = number_or_null(config.logit_softcap);
}

void write_gemma3(const ModelConfig& config, OrderedJson& json) {
  write_gemma2(config, json);
  if (config.local_rope) json["rope_local_base_freq"] = config.local_rope->theta;
}

// --- phi3 ---

void read_phi3(ConfigReader& reader, ModelConfig& config) {
  read_llama_like(reader, config, {32064, 3072, 8192, 32, 32, 0, 0, 4096, 1e-5});
  config.qkv_packing = QkvPacking::fused;
  config.fused_gate_up = true;
  set_sliding_windows(config, read_sliding_window(reader, 0));
  reader.ignore({"original_max_position_embeddings"});
  note_dropout(reader, config, {"embd_pdrop", "resid_pdrop"});
}

void write_phi3(const ModelConfig& config, OrderedJson& json) {
  write_llama_like(config, json);
  json["sliding_window"] = size_or_null(config.sliding_window());
  if (config.rope.kind == RopeKind::plain) json["original_max_position_embeddings"] = config.max_positions;
  json["embd_pdrop"] = 0.0;
  json["resid_pdrop"] = 0.0;
}

// --- gpt_neox ---

// Defaults: GPTNeoXConfig of transformers 4.57.
void read_gpt_neox(ConfigReader& reader, ModelConfig& config) {
  config.vocab_size = reader.size("vocab_size", 50432, kMaxRows);
  config.hidden_size = reader.size("hidden_size", 6144, kMaxWidth);
  config.intermediate_size = reader.size("intermediate_size", 24576, kMaxWidth);
  config.num_layers = reader.size("num_hidden_layers", 44, kMaxLayers);
  config.num_heads = config.num_kv_heads = reader.size("num_attention_heads", 64, kMaxWidth);
  config.head_dim = even_share(reader, config);
  config.max_positions = reader.size("max_position_embeddings", 2048, kMaxRows);

  config.norm = NormKind::layer;
  config.norm_eps = reader.non_negative("layer_norm_eps", 1e-5);
  config.parallel_residual = reader.boolean("use_parallel_residual").value_or(true);
  config.mlp = MlpKind::plain;
  config.activation = read_activation(reader, "hidden_act", "gelu");
  config.attention_scale = 1 / std::sqrt(static_cast<double>(config.head_dim));
  config.qkv_bias = config.output_bias = reader.boolean("attention_bias").value_or(true);
  config.mlp_bias = true;
  config.qkv_packing = QkvPacking::interleaved;
  config.tie_word_embeddings = reader.boolean("tie_word_embeddings").value_or(false);
  config.initializer_range = reader.non_negative("initializer_range", 0.02);
  set_sliding_windows(config, 0);
  // The older names of the fraction and the base; transformers 4.57 writes both.
  Json rope{{"rope_theta", reader.number("rotary_emb_base").value_or(reader.number("rope_theta").value_or(10000))},
            {"partial_rotary_factor",
             reader.number("rotary_pct").value_or(reader.number("partial_rotary_factor").value_or(0.25))}};
  for (const char* key : {"rope_scaling", "rope_parameters"})
    if (const Json* found = reader.value(key)) rope[key] = *found;
  ConfigReader rope_reader(rope, reader.source());
  read_rope(rope_reader, config, 10000);

  reader.ignore({"classifier_dropout", "pad_token_id"});
  note_dropout(reader, config, {"attention_dropout", "hidden_dropout"});
}

void write_gpt_neox(const ModelConfig& config, OrderedJson& json) {
  json.update({{"hidden_size", config.hidden_size},
               {"intermediate_size", config.intermediate_size},
               {"num_hidden_layers", config.num_layers},
               {"num_attention_heads", config.num_heads},
               {"max_position_embeddings", config.max_positions},
               {"hidden_act", activation_name(config.activation)},
               {"layer_norm_eps", config.norm_eps},
               {"use_parallel_residual", config.parallel_residual},
               {"attention_bias", config.qkv_bias},
               {"attention_dropout", 0.0},
               {"hidden_dropout", 0.0}});
  write_rope(config, json);
  json["rotary_emb_base"] = config.rope.theta;
  json["rotary_pct"] = rotary_fraction(config);
}

// --- gpt2 ---

// GPT-2's names and the aliases that transformers maps to them: either is read, both must agree.
int64_t aliased_size(ConfigReader& reader, const std::string& name, const std::string& alias, int64_t otherwise,
                     int64_t most) {
  const int64_t by_alias = reader.size(alias, reader.size(name, otherwise, most), most);
  require<ConfigError>(!reader.value(name) || by_alias == reader.size(name, otherwise, most),
                       "{}: {} and {} name the same size and differ", reader.source(), name, alias);
  return by_alias;
}

// Defaults: GPT2Config of transformers 4.57, but for the dropouts, which are 0.
void read_gpt2(ConfigReader& reader, ModelConfig& config) {
  config.vocab_size = reader.size("vocab_size", 50257, kMaxRows);
  config.hidden_size = aliased_size(reader, "n_embd", "hidden_size", 768, kMaxWidth);
  config.num_layers = aliased_size(reader, "n_layer", "num_hidden_layers", 12, kMaxLayers);
  config.num_heads = config.num_kv_heads = aliased_size(reader, "n_head", "num_attention_heads", 12, kMaxWidth);
  config.max_positions = aliased_size(reader, "n_positions", "max_position_embeddings", 1024, kMaxRows);
  config.intermediate_size = reader.size("n_inner", 4 * config.hidden_size, 4 * kMaxWidth);
  config.head_dim = even_share(reader, config);

  config.norm = NormKind::layer;
  config.norm_eps = reader.non_negative("layer_norm_epsilon", 1e-5);
  config.positions = PositionKind::learned;
  config.mlp = MlpKind::plain;
  config.activation = read_activation(reader, "activation_function", "gelu_new");
  const bool scaled = reader.boolean("scale_attn_weights").value_or(true);
  config.attention_scale = scaled ? 1 / std::sqrt(static_cast<double>(config.head_dim)) : 1;
  config.qkv_bias = config.output_bias = config.mlp_bias = true;
  config.tie_word_embeddings = reader.boolean("tie_word_embeddings").value_or(true);
  config.weight_layout = WeightLayout::in_out;
  config.qkv_packing = QkvPacking::fused;
  config.initializer_range = reader.non_negative("initializer_range", 0.02);
  config.residual_initializer_scale = 1 / std::sqrt(2.0 * static_cast<double>(config.num_layers));
  set_sliding_windows(config, 0);

  config.scale_by_layer = reader.boolean("scale_attn_by_inverse_layer_idx").value_or(false);
  config.upcast_scores = reader.boolean("reorder_and_upcast_attn").value_or(false);
  reader.ignore({"n_ctx",  // an old twin of n_positions
                 "pad_token_id", "summary_activation", "summary_first_dropout", "summary_proj_to_labels",
                 "summary_type", "summary_use_proj"});
  note_dropout(reader, config, {"attn_pdrop", "embd_pdrop", "resid_pdrop"});
}

void write_gpt2(const ModelConfig& config, OrderedJson& json) {
  const bool tanh = config.activation == Activation::gelu_tanh;  // GPT-2's own name for it
  // transformers' own defaults drop out a tenth; nothing was dropped here.
  json.update({{"n_embd", config.hidden_size},
               {"n_inner", config.intermediate_size},
               {"n_layer", config.num_layers},
               {"n_head", config.num_heads},
               {"n_positions", config.max_positions},
               {"activation_function", tanh ? "gelu_new" : activation_name(config.activation)},
               {"layer_norm_epsilon", config.norm_eps},
               {"scale_attn_weights", config.head_dim == 1 || config.attention_scale != 1},
               {"scale_attn_by_inverse_layer_idx", config.scale_by_layer},
               {"reorder_and_upcast_attn", config.upcast_scores},
               {"attn_pdrop", 0.0},
               {"embd_pdrop", 0.0},
               {"resid_pdrop", 0.0}});
}

// --- cohere2, phi, opt ---

/// A layer norm whose result both branches read.
void read_parallel_branches(ConfigReader& reader, ModelConfig& config) {
  config.norm = NormKind::layer;
  config.norm_eps = reader.non_negative("layer_norm_eps", 1e-5);
  config.parallel_residual = config.shared_norm = true;
}

/// Layers that see everything know no positions.
void read_cohere2(ConfigReader& reader, ModelConfig& config) {
  read_llama_like(reader, config, {256000, 8192, 22528, 40, 64, 0, 0, 8192, 1e-5, 10000, true});
  require<ConfigError>(config.head_dim == even_share(reader, config),
                       "{}: head_dim is {}, cohere2 has hidden_size / num_attention_heads", reader.source(),
                       config.head_dim);
  read_parallel_branches(reader, config);
  config.norm_bias = false;
  config.qkv_bias = config.output_bias = reader.boolean("attention_bias").value_or(false);
  config.rope.interleaved = true;
  config.logit_divisor = 1 / read_positive(reader, "logit_scale", 0.0625);
  const int64_t window = read_sliding_window(reader, 4096);
  require<ConfigError>(window > 0, "{}: sliding_window is null, cohere2 needs a number", reader.source());
  read_layer_types(
      reader, config, window, all_but_every_nth,
      reader.size("sliding_window_pattern", reader.size("_sliding_window_pattern", 4, kMaxLayers), kMaxLayers));
  for (const int64_t each : config.sliding_windows) config.unrotated.push_back(each == 0);
  if (std::ranges::count(config.unrotated, true) == 0) config.unrotated.clear();
  reader.ignore({"cache_implementation"});
}

void write_cohere2(const ModelConfig& config, OrderedJson& json) {
  write_llama_like(config, json);
  write_layer_types(config, json);
  json.erase("rms_norm_eps");
  json["layer_norm_eps"] = config.norm_eps;
  json["attention_bias"] = config.qkv_bias;
  json["logit_scale"] = 1 / config.logit_divisor;
}

void read_phi(ConfigReader& reader, ModelConfig& config) {
  read_llama_like(reader, config,
                  {.vocab_size = 51200,
                   .hidden_size = 2048,
                   .intermediate_size = 8192,
                   .num_layers = 24,
                   .num_heads = 32,
                   .num_kv_heads = 0,
                   .head_dim = 0,
                   .max_positions = 2048,
                   .activation = "gelu_new",
                   .rotary_fraction = 0.5});
  read_parallel_branches(reader, config);
  config.mlp = MlpKind::plain;
  config.qkv_bias = config.output_bias = config.mlp_bias = config.head_bias = true;
  reader.only("qk_layernorm", false, "heads are not normalised by layer norms");
  note_dropout(reader, config, {"embd_pdrop", "resid_pdrop"});
}

void write_phi(const ModelConfig& config, OrderedJson& json) {
  write_llama_like(config, json);
  json.erase("rms_norm_eps");
  json["layer_norm_eps"] = config.norm_eps;
  write_rotary_fraction(config, json);
  if (config.activation == Activation::gelu_tanh) json["hidden_act"] = "gelu_new";  // its own name for it
  json["qk_layernorm"] = false;
  json["embd_pdrop"] = 0.0;
  json["resid_pdrop"] = 0.0;
}

void read_opt(ConfigReader& reader, ModelConfig& config) {
  config.vocab_size = reader.size("vocab_size", 50272, kMaxRows);
  config.hidden_size = reader.size("hidden_size", 768, kMaxWidth);
  config.intermediate_size = reader.size("ffn_dim", 3072, kMaxWidth);
  config.num_layers = reader.size("num_hidden_layers", 12, kMaxLayers);
  config.num_heads = config.num_kv_heads = reader.size("num_attention_heads", 12, kMaxWidth);
  config.max_positions = reader.size("max_position_embeddings", 2048, kMaxRows);
  config.head_dim = even_share(reader, config);

  config.norm = NormKind::layer;
  config.norm_eps = 1e-5;
  const bool before = reader.boolean("do_layer_norm_before").value_or(true);
  config.norm_placement = before ? NormPlacement::pre : NormPlacement::sum;
  config.final_norm = before && !reader.boolean("_remove_final_layer_norm").value_or(false);
  config.positions = PositionKind::learned;
  config.position_offset = 2;
  config.mlp = MlpKind::plain;
  config.activation = read_activation(reader, "activation_function", "relu");
  config.attention_scale = 1 / std::sqrt(static_cast<double>(config.head_dim));
  config.qkv_bias = config.output_bias = config.mlp_bias = reader.boolean("enable_bias").value_or(true);
  config.tie_word_embeddings = reader.boolean("tie_word_embeddings").value_or(true);
  config.initializer_range = reader.non_negative("init_std", 0.02);
  set_sliding_windows(config, 0);

  const int64_t width = reader.size("word_embed_proj_dim", config.hidden_size, kMaxWidth);
  if (width != config.hidden_size) config.projected_size = width;
  reader.only("layer_norm_elementwise_affine", true, "layer norms have weights");
  reader.ignore({"pad_token_id", "initializer_range", "activation_dropout"});
  note_dropout(reader, config, {"dropout", "attention_dropout", "layerdrop"});
}

void write_opt(const ModelConfig& config, OrderedJson& json) {
  const bool before = config.norm_placement == NormPlacement::pre;
  json.update({{"hidden_size", config.hidden_size},
               {"ffn_dim", config.intermediate_size},
               {"num_hidden_layers", config.num_layers},
               {"num_attention_heads", config.num_heads},
               {"max_position_embeddings", config.max_positions},
               {"word_embed_proj_dim", config.token_width()},
               {"activation_function", activation_name(config.activation)},
               {"do_layer_norm_before", before},
               {"_remove_final_layer_norm", before && !config.final_norm},
               {"enable_bias", config.qkv_bias},
               {"init_std", config.initializer_range},
               {"pad_token_id", nullptr},
               {"dropout", 0.0},
               {"attention_dropout", 0.0},
               {"layerdrop", 0.0}});
}

constexpr Family kOtherFamilies[] = {{"cohere2", "Cohere2ForCausalLM", read_cohere2, write_cohere2},
                                     {"opt", "OPTForCausalLM", read_opt, write_opt},
                                     {"phi", "PhiForCausalLM", read_phi, write_phi},
                                     {"gemma", "GemmaForCausalLM", read_gemma, write_gemma},
                                     {"gemma2", "Gemma2ForCausalLM", read_gemma2, write_gemma2},
                                     {"gemma3_text", "Gemma3ForCausalLM", read_gemma3, write_gemma3},
                                     {"gpt2", "GPT2LMHeadModel", read_gpt2, write_gpt2},
                                     {"gpt_neox", "GPTNeoXForCausalLM", read_gpt_neox, write_gpt_neox},
                                     {"phi3", "Phi3ForCausalLM", read_phi3, write_phi3}};

}  // namespace

std::span<const Family> other_families() { return kOtherFamilies; }

const std::vector<Family>& all_families() {
  static const std::vector<Family> all = [] {
    std::vector<Family> families;
    for (const auto some : {llama_families(), other_families(), expert_families(), deep_families(), state_families()})
      families.insert(families.end(), some.begin(), some.end());
    std::sort(families.begin(), families.end(),
              [](const Family& a, const Family& b) { return std::string_view(a.name) < b.name; });
    return families;
  }();
  return all;
}

std::vector<std::string> known_families() {
  std::vector<std::string> known = ModelConfig::families();
  known.insert(known.end(), ModelConfig::encoders().begin(), ModelConfig::encoders().end());
  return known;
}

const Family& family_named(const std::string& source, const std::string& name) {
  const std::string known_as = name == "kimi_k2" ? "deepseek_v3" : name;  // the same model by another name
  for (const auto some : {std::span<const Family>(all_families()), encoder_families()})
    for (const Family& family : some)
      if (known_as == family.name) return family;
  const std::vector<std::string> known = known_families();
  fail<ConfigError>("{}: model_type \"{}\" is not supported, known are {}{}", source, name, fmt::join(known, ", "),
                    did_you_mean(name, known));
}

}  // namespace nought
