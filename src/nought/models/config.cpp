#include "nought/models/config.h"

#include <cmath>
#include <fstream>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "nought/base/text.h"
#include "nought/models/config_reader.h"

namespace nought {

namespace {

// Beyond these a config is damaged; below them no count of bytes or parameters overflows.
constexpr int64_t kMaxWidth = int64_t{1} << 22;
constexpr int64_t kMaxLayers = int64_t{1} << 14;
constexpr int64_t kMaxRows = int64_t{1} << 30;  // of an embedding

constexpr std::pair<const char*, Activation> kActivations[] = {
    // The first name of each is the one that is written.
    {"silu", Activation::silu},           {"swish", Activation::silu},
    {"gelu", Activation::gelu_erf},       {"gelu_python", Activation::gelu_erf},
    {"gelu_new", Activation::gelu_tanh},  {"gelu_pytorch_tanh", Activation::gelu_tanh},
    {"gelu_fast", Activation::gelu_tanh}, {"gelu_accurate", Activation::gelu_tanh}};

Activation read_activation(ConfigReader& reader, const std::string& key, const std::string& otherwise) {
  const std::string name = reader.text(key).value_or(otherwise);
  std::string known;
  for (const auto& [candidate, activation] : kActivations) {
    if (name == candidate) return activation;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", candidate);
  }
  fail<ConfigError>("{}: {} is \"{}\", supported are {}", reader.source(), key, name, known);
}

std::string activation_name(Activation activation) {
  for (const auto& [name, candidate] : kActivations) {
    if (candidate == activation) return name;
  }
  return "silu";
}

std::string torch_name(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return "float64";
    case DType::f32:
      return "float32";
    case DType::bf16:
      return "bfloat16";
    case DType::f16:
      return "float16";
    default:
      fail<ConfigError>("weights cannot be saved as {}", name_of(dtype));
  }
}

void note_dropout(ConfigReader& reader, ModelConfig& config, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    const double probability = reader.non_negative(key, 0);
    if (probability > 0) config.notes.push_back(fmt::format("{} is {}: dropout is not applied", key, probability));
  }
}

// Keys that every Hugging Face config may carry and that do not change what a decoder computes.
void read_common(ConfigReader& reader, ModelConfig& config) {
  reader.ignore({"model_type",
                 "architectures",
                 "dtype",
                 "torch_dtype",
                 "transformers_version",
                 "use_cache",
                 "_name_or_path",
                 "_attn_implementation_autoset",
                 "attn_implementation",
                 "_commit_hash",
                 "output_attentions",
                 "output_hidden_states",
                 "return_dict",
                 "return_dict_in_generate",
                 "torchscript",
                 "id2label",
                 "label2id",
                 "num_labels",
                 "problem_type",
                 "task_specific_params",
                 "finetuning_task",
                 "tokenizer_class",
                 "prefix",
                 "sep_token_id",
                 "decoder_start_token_id",
                 "is_decoder",
                 "chunk_size_feed_forward",
                 "pruned_heads",
                 "cls_token_id",
                 "unk_token_id",
                 "cross_attention_hidden_size",
                 "tie_encoder_decoder",
                 "use_bfloat16",
                 "tf_legacy_loss",
                 "gradient_checkpointing",
                 "max_length",
                 "min_length",
                 "do_sample",
                 "early_stopping",
                 "num_beams",
                 "num_beam_groups",
                 "diversity_penalty",
                 "temperature",
                 "top_k",
                 "top_p",
                 "typical_p",
                 "repetition_penalty",
                 "length_penalty",
                 "no_repeat_ngram_size",
                 "encoder_no_repeat_ngram_size",
                 "bad_words_ids",
                 "num_return_sequences",
                 "output_scores",
                 "forced_bos_token_id",
                 "forced_eos_token_id",
                 "remove_invalid_values",
                 "suppress_tokens",
                 "begin_suppress_tokens",
                 "exponential_decay_length_penalty"});
  reader.only("is_encoder_decoder", false, "there is no encoder");
  reader.only("add_cross_attention", false, "there is no encoder to attend to");
  if (reader.value("quantization_config")) {
    fail<ConfigError>("{}: quantization_config is set, quantised weights are not supported: use the original model",
                      reader.source());
  }
  if (reader.value("auto_map")) {
    config.notes.push_back(
        fmt::format("auto_map names Python code that is not run: the model computes what {} does", config.family));
  }
  const auto bos = reader.ids("bos_token_id");
  if (!bos.empty()) config.bos_token_id = bos[0];
  config.eos_token_ids = reader.ids("eos_token_id");
}

// rope_theta and rope_scaling of transformers 4, or rope_parameters of 5, which holds both.
void read_rope(ConfigReader& reader, ModelConfig& config) {
  config.rope_theta = reader.number("rope_theta").value_or(10000);
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const nlohmann::json* found = reader.value(key);
    if (!found) continue;
    ConfigReader rope(*found, fmt::format("{}: {}", reader.source(), key));
    const std::string type = rope.text("rope_type").value_or(rope.text("type").value_or("default"));
    require<ConfigError>(type == "default", "{}: the rope type \"{}\" is not supported, only \"default\" is",
                         rope.source(), type);
    rope.only("partial_rotary_factor", 1.0, "llama rotates whole heads");
    config.rope_theta = rope.number("rope_theta").value_or(config.rope_theta);
    for (const std::string& other : rope.unknown_keys()) {
      config.notes.push_back(fmt::format("{}.{} has no effect with the default rope type", key, other));
    }
  }
  reader.only("partial_rotary_factor", 1.0, "llama rotates whole heads");
  require<ConfigError>(std::isfinite(config.rope_theta) && config.rope_theta > 0,
                       "{}: rope_theta is {}, expected a positive number", reader.source(), config.rope_theta);
  require<ConfigError>(config.head_dim % 2 == 0, "{}: head_dim is {}, rotary positions need an even one",
                       reader.source(), config.head_dim);
  config.positions = PositionKind::rope;
  config.rotary_dim = config.head_dim;
}

int64_t even_share(ConfigReader& reader, const ModelConfig& config) {
  require<ConfigError>(config.hidden_size % config.num_heads == 0,
                       "{}: the hidden size {} is not divisible by {} heads; set head_dim or change one of them",
                       reader.source(), config.hidden_size, config.num_heads);
  return config.hidden_size / config.num_heads;
}

// Defaults: LlamaConfig of transformers 4.57.
void read_llama(ConfigReader& reader, ModelConfig& config) {
  config.vocab_size = reader.size("vocab_size", 32000, kMaxRows);
  config.hidden_size = reader.size("hidden_size", 4096, kMaxWidth);
  config.intermediate_size = reader.size("intermediate_size", 11008, kMaxWidth);
  config.num_layers = reader.size("num_hidden_layers", 32, kMaxLayers);
  config.num_heads = reader.size("num_attention_heads", 32, kMaxWidth);
  config.num_kv_heads = reader.size("num_key_value_heads", config.num_heads, kMaxWidth);
  config.head_dim = reader.value("head_dim") ? reader.size("head_dim", 1, kMaxWidth) : even_share(reader, config);
  config.max_positions = reader.size("max_position_embeddings", 2048, kMaxRows);
  require<ConfigError>(config.num_heads % config.num_kv_heads == 0,
                       "{}: num_attention_heads {} is not a multiple of num_key_value_heads {}", reader.source(),
                       config.num_heads, config.num_kv_heads);

  config.norm = NormKind::rms;
  config.norm_eps = reader.non_negative("rms_norm_eps", 1e-6);
  config.mlp = MlpKind::gated;
  config.activation = read_activation(reader, "hidden_act", "silu");
  config.attention_scale = 1 / std::sqrt(static_cast<double>(config.head_dim));
  config.qkv_bias = config.output_bias = reader.boolean("attention_bias").value_or(false);
  config.mlp_bias = reader.boolean("mlp_bias").value_or(false);
  config.tie_word_embeddings = reader.boolean("tie_word_embeddings").value_or(false);
  config.initializer_range = reader.non_negative("initializer_range", 0.02);
  read_rope(reader, config);

  reader.only("pretraining_tp", 1, "split products are not reproduced");
  note_dropout(reader, config, {"attention_dropout"});
  if (const auto pad = reader.integer("pad_token_id")) {
    config.notes.push_back(fmt::format("pad_token_id is {}: its embedding is trained like any other's", *pad));
  }
}

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
  config.fused_qkv = true;
  config.initializer_range = reader.non_negative("initializer_range", 0.02);
  config.residual_initializer_scale = 1 / std::sqrt(2.0 * static_cast<double>(config.num_layers));

  reader.only("scale_attn_by_inverse_layer_idx", false, "every layer scales its scores alike");
  // reorder_and_upcast_attn keeps scores in fp32, which holds here always; n_ctx is an old twin of n_positions.
  reader.ignore({"reorder_and_upcast_attn", "n_ctx", "pad_token_id", "summary_activation", "summary_first_dropout",
                 "summary_proj_to_labels", "summary_type", "summary_use_proj"});
  note_dropout(reader, config, {"attn_pdrop", "embd_pdrop", "resid_pdrop"});
}

struct Family {
  const char* name;
  void (*read)(ConfigReader&, ModelConfig&);
};
constexpr Family kFamilies[] = {{"gpt2", read_gpt2}, {"llama", read_llama}};

const Family& family_named(const std::string& source, const std::string& name) {
  for (const Family& family : kFamilies) {
    if (name == family.name) return family;
  }
  const std::vector<std::string>& known = ModelConfig::families();
  fail<ConfigError>("{}: model_type \"{}\" is not supported, known are {}{}", source, name, fmt::join(known, ", "),
                    did_you_mean(name, known));
}

}  // namespace

const std::vector<std::string>& ModelConfig::families() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Family& family : kFamilies) all.emplace_back(family.name);
    return all;
  }();
  return names;
}

ModelConfig ModelConfig::from_json(const nlohmann::json& json, const std::string& source) {
  ConfigReader reader(json, source);
  ModelConfig config;
  const auto family = reader.text("model_type");
  require<ConfigError>(family.has_value(), "{}: has no model_type, known are {}", source, fmt::join(families(), ", "));
  config.family = *family;
  family_named(source, *family).read(reader, config);
  read_common(reader, config);
  for (const std::string& key : reader.unknown_keys()) {
    config.notes.push_back(fmt::format("{} is not a key of {}: not used", key, config.family));
  }
  return config;
}

ModelConfig ModelConfig::from_folder(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "config.json";
  std::ifstream stream(file);
  require<IoError>(stream.good(), "{}: cannot open; a model folder holds a config.json", file.string());
  const nlohmann::json json = nlohmann::json::parse(stream, nullptr, false);
  require<IoError>(!json.is_discarded(), "{}: not valid JSON", file.string());
  return from_json(json, file.string());
}

int64_t ModelConfig::parameter_count() const {
  const int64_t q_width = num_heads * head_dim, kv_width = num_kv_heads * head_dim;
  const int64_t norm_size = norm == NormKind::layer ? 2 * hidden_size : hidden_size;
  const int64_t up_width = mlp == MlpKind::gated ? 2 * intermediate_size : intermediate_size;

  int64_t layer = 2 * norm_size;
  layer += hidden_size * (q_width + 2 * kv_width) + (qkv_bias ? q_width + 2 * kv_width : 0);
  layer += q_width * hidden_size + (output_bias ? hidden_size : 0);
  layer += hidden_size * (up_width + intermediate_size) + (mlp_bias ? up_width + hidden_size : 0);

  const int64_t embedding = vocab_size * hidden_size;
  const int64_t learned = positions == PositionKind::learned ? max_positions * hidden_size : 0;
  return embedding + learned + num_layers * layer + norm_size + (tie_word_embeddings ? 0 : embedding);
}

nlohmann::ordered_json ModelConfig::to_hf_json(DType dtype) const {
  nlohmann::ordered_json json;
  const bool llama = family == "llama";
  require<ConfigError>(llama || family == "gpt2", "the family \"{}\" has no Hugging Face config", family);
  json["architectures"] = nlohmann::ordered_json::array({llama ? "LlamaForCausalLM" : "GPT2LMHeadModel"});
  json["model_type"] = family;
  json["vocab_size"] = vocab_size;
  if (llama) {
    json.update({{"hidden_size", hidden_size},
                 {"intermediate_size", intermediate_size},
                 {"num_hidden_layers", num_layers},
                 {"num_attention_heads", num_heads},
                 {"num_key_value_heads", num_kv_heads},
                 {"head_dim", head_dim},
                 {"max_position_embeddings", max_positions},
                 {"hidden_act", activation_name(activation)},
                 {"rms_norm_eps", norm_eps},
                 {"rope_theta", rope_theta},
                 {"attention_bias", qkv_bias},
                 {"mlp_bias", mlp_bias},
                 {"attention_dropout", 0.0}});
  } else {
    // transformers' own defaults drop out a tenth; nothing was dropped here.
    json.update({{"n_embd", hidden_size},
                 {"n_inner", intermediate_size},
                 {"n_layer", num_layers},
                 {"n_head", num_heads},
                 {"n_positions", max_positions},
                 {"activation_function", activation_name(activation)},
                 {"layer_norm_epsilon", norm_eps},
                 {"scale_attn_weights", head_dim == 1 || attention_scale != 1},
                 {"attn_pdrop", 0.0},
                 {"embd_pdrop", 0.0},
                 {"resid_pdrop", 0.0}});
  }
  json["initializer_range"] = initializer_range;
  json["tie_word_embeddings"] = tie_word_embeddings;
  json["bos_token_id"] = bos_token_id ? nlohmann::ordered_json(*bos_token_id) : nullptr;
  json["eos_token_id"] = nullptr;
  if (eos_token_ids.size() == 1) json["eos_token_id"] = eos_token_ids[0];
  if (eos_token_ids.size() > 1) json["eos_token_id"] = eos_token_ids;
  json["torch_dtype"] = torch_name(dtype);  // transformers 4 and 5 both read this older key
  json["use_cache"] = true;
  return json;
}

}  // namespace nought
