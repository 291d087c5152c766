#include "nought/models/config_common.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "nought/base/json.h"
#include "nought/base/text.h"

namespace nought {

namespace {

constexpr std::pair<const char*, Activation> kActivations[] = {
    // The first name of each is the one that is written.
    {"silu", Activation::silu},
    {"swish", Activation::silu},
    {"gelu", Activation::gelu_erf},
    {"gelu_python", Activation::gelu_erf},
    {"gelu_pytorch_tanh", Activation::gelu_tanh},
    {"gelu_new", Activation::gelu_tanh},
    {"gelu_fast", Activation::gelu_tanh},
    {"gelu_accurate", Activation::gelu_tanh},
    {"relu", Activation::relu}};

constexpr const char* kSliding = "sliding_attention";
constexpr const char* kChunked = "chunked_attention";
constexpr const char* kFull = "full_attention";

}  // namespace

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

double read_positive(ConfigReader& reader, const char* key, double otherwise) {
  const double value = reader.number(key).value_or(otherwise);
  require<ConfigError>(std::isfinite(value) && value > 0, "{}: {} is {}, expected a positive number", reader.source(),
                       key, value);
  return value;
}

int64_t even_share(ConfigReader& reader, const ModelConfig& config) {
  require<ConfigError>(config.hidden_size % config.num_heads == 0,
                       "{}: the hidden size {} is not divisible by {} heads; set head_dim or change one of them",
                       reader.source(), config.hidden_size, config.num_heads);
  return config.hidden_size / config.num_heads;
}

void note_dropout(ConfigReader& reader, ModelConfig& config, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    const double probability = reader.non_negative(key, 0);
    if (probability > 0) config.notes.push_back(fmt::format("{} is {}: dropout is not applied", key, probability));
  }
}

void read_llama_like(ConfigReader& reader, ModelConfig& config, const LlamaDefaults& defaults) {
  config.vocab_size = reader.size("vocab_size", defaults.vocab_size, kMaxRows);
  config.hidden_size = reader.size("hidden_size", defaults.hidden_size, kMaxWidth);
  config.intermediate_size = reader.size("intermediate_size", defaults.intermediate_size, kMaxWidth);
  config.num_layers = reader.size("num_hidden_layers", defaults.num_layers, kMaxLayers);
  config.num_heads = reader.size("num_attention_heads", defaults.num_heads, kMaxWidth);
  // Null means as many as query heads, as it does to transformers; an absent key means the family's default.
  const int64_t kv_heads =
      reader.has("num_key_value_heads") || defaults.num_kv_heads == 0 ? config.num_heads : defaults.num_kv_heads;
  config.num_kv_heads = reader.size("num_key_value_heads", kv_heads, kMaxWidth);
  const bool shared =
      !reader.value(defaults.head_dim_key) && (defaults.head_dim == 0 || reader.has(defaults.head_dim_key));
  config.head_dim =
      shared ? even_share(reader, config) : reader.size(defaults.head_dim_key, defaults.head_dim, kMaxWidth);
  config.max_positions = reader.size("max_position_embeddings", defaults.max_positions, kMaxRows);
  require<ConfigError>(config.num_heads % config.num_kv_heads == 0,
                       "{}: num_attention_heads {} is not a multiple of num_key_value_heads {}", reader.source(),
                       config.num_heads, config.num_kv_heads);

  config.norm = NormKind::rms;
  config.norm_eps = reader.non_negative("rms_norm_eps", defaults.norm_eps);
  config.mlp = MlpKind::gated;
  config.activation = read_activation(reader, defaults.activation_key, defaults.activation);
  config.attention_scale = 1 / std::sqrt(static_cast<double>(config.head_dim));
  config.tie_word_embeddings = reader.boolean("tie_word_embeddings").value_or(defaults.tied);
  config.initializer_range = reader.non_negative("initializer_range", 0.02);
  set_sliding_windows(config, 0);
  read_rope(reader, config, defaults.rope_theta, defaults.rotary_fraction);

  note_dropout(reader, config, {"attention_dropout"});
  if (const auto pad = reader.integer("pad_token_id")) {
    config.notes.push_back(fmt::format("pad_token_id is {}: its embedding is trained like any other's", *pad));
  }
}

void write_llama_like(const ModelConfig& config, OrderedJson& json, const char* activation_key) {
  json.update({{"hidden_size", config.hidden_size},
               {"intermediate_size", config.intermediate_size},
               {"num_hidden_layers", config.num_layers},
               {"num_attention_heads", config.num_heads},
               {"num_key_value_heads", config.num_kv_heads},
               {"head_dim", config.head_dim},
               {"max_position_embeddings", config.max_positions},
               {activation_key, activation_name(config.activation)},
               {"rms_norm_eps", config.norm_eps},
               {"pad_token_id", nullptr},
               {"attention_dropout", 0.0}});
  write_rope(config, json);
}

bool all_but_every_nth(int64_t layer, int64_t period) { return (layer + 1) % period != 0; }

int64_t read_sliding_window(ConfigReader& reader, int64_t otherwise) {
  if (!reader.has("sliding_window")) return otherwise;
  return reader.value("sliding_window") ? reader.size("sliding_window", 1, kMaxRows) : 0;
}

int64_t read_used_window(ConfigReader& reader) {
  const bool used = reader.boolean("use_sliding_window").value_or(false);
  reader.ignore({"sliding_window"});
  return used ? read_sliding_window(reader, 4096) : 0;
}

void set_sliding_windows(ModelConfig& config, int64_t window) {
  config.sliding_windows.assign(static_cast<size_t>(config.num_layers), window);
}

void read_layer_types(ConfigReader& reader, ModelConfig& config, int64_t window, bool (*slides)(int64_t, int64_t),
                      int64_t argument) {
  const char* local = config.chunked ? kChunked : kSliding;
  const char* key = config.chunked ? "attention_chunk_size" : "sliding_window";
  const Json* types = reader.value("layer_types");
  require<ConfigError>(!types || (types->is_array() && static_cast<int64_t>(types->size()) == config.num_layers),
                       "{}: layer_types must be a list of {} entries, one for each layer", reader.source(),
                       config.num_layers);
  for (int64_t i = 0; i < config.num_layers; ++i) {
    bool sliding = slides(i, argument);
    if (types) {
      const Json& type = (*types)[static_cast<size_t>(i)];
      require<ConfigError>(type == local || type == kFull, "{}: layer_types[{}] is {}, supported are {} and {}",
                           reader.source(), i, type.dump(), local, kFull);
      sliding = type == local;
    }
    require<ConfigError>(!(types && sliding) || window > 0, "{}: layer_types[{}] is {}, but there is no {}",
                         reader.source(), i, local, key);
    config.sliding_windows[static_cast<size_t>(i)] = sliding ? window : 0;
  }
}

void write_layer_types(const ModelConfig& config, OrderedJson& json) {
  json[config.chunked ? "attention_chunk_size" : "sliding_window"] = size_or_null(config.sliding_window());
  json["layer_types"] = OrderedJson::array();
  for (const int64_t window : config.sliding_windows)
    json["layer_types"].push_back(window == 0 ? kFull : config.chunked ? kChunked : kSliding);
}

void read_unrotated_layers(ConfigReader& reader, ModelConfig& config) {
  const std::vector<int64_t> given = reader.ids("no_rope_layers");
  const int64_t interval = reader.size("no_rope_layer_interval", 4, kMaxLayers);
  require<ConfigError>(given.empty() || std::ssize(given) == config.num_layers,
                       "{}: no_rope_layers must be a list of {} numbers, 1 for each layer with rotary positions",
                       reader.source(), config.num_layers);
  for (int64_t i = 0; i < config.num_layers; ++i)
    config.unrotated.push_back(given.empty() ? (i + 1) % interval == 0 : given[static_cast<size_t>(i)] == 0);
  if (std::ranges::count(config.unrotated, true) == 0) config.unrotated.clear();
}

void write_unrotated_layers(const ModelConfig& config, OrderedJson& json) {
  json["no_rope_layers"] = OrderedJson::array();
  for (int64_t i = 0; i < config.num_layers; ++i) json["no_rope_layers"].push_back(config.rotates(i) ? 1 : 0);
}

OrderedJson number_or_null(double number) { return number == 0 ? OrderedJson(nullptr) : OrderedJson(number); }

OrderedJson size_or_null(int64_t number) { return number == 0 ? OrderedJson(nullptr) : OrderedJson(number); }

}  // namespace nought
