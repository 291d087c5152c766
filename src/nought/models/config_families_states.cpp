// The families with layers that keep a state along a sequence. Defaults: those of transformers 5.24.
#include <algorithm>

#include "nought/base/json.h"
#include "nought/base/math.h"
#include "nought/kernels/ops/short_conv.h"
#include "nought/models/config_common.h"
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

constexpr Family kStateFamilies[] = {{"lfm2", "Lfm2ForCausalLM", read_lfm2, write_lfm2}};

}  // namespace

std::span<const Family> state_families() { return kStateFamilies; }

}  // namespace nought
