// Functions that the readers and writers of the families share: for sizes, activations, positions and sliding windows.
#pragma once

#include "nought/base/json.h"
#include "nought/models/config.h"
#include "nought/models/config_reader.h"

namespace nought {

// Largest sizes that are accepted. Within them no count of bytes or parameters overflows.
inline constexpr int64_t kMaxWidth = int64_t{1} << 22;
inline constexpr int64_t kMaxLayers = int64_t{1} << 14;
inline constexpr int64_t kMaxRows = int64_t{1} << 30;  // rows of an embedding

/// The defaults of a llama-like family in transformers 4.57.
struct LlamaDefaults {
  int64_t vocab_size, hidden_size, intermediate_size, num_layers, num_heads;
  int64_t num_kv_heads;  // 0: num_heads
  int64_t head_dim;      // 0: hidden_size / num_heads
  int64_t max_positions;
  double norm_eps = 1e-6;
  double rope_theta = 10000;
  bool tied = false;
  const char* activation_key = "hidden_act";
  const char* activation = "silu";
  const char* head_dim_key = "head_dim";
  double rotary_fraction = 1;
};
/// Reads sizes, norm, activation, tying and rope by the names that llama and later families share.
void read_llama_like(ConfigReader& reader, ModelConfig& config, const LlamaDefaults& defaults);
void write_llama_like(const ModelConfig& config, OrderedJson& json, const char* activation_key = "hidden_act");

Activation read_activation(ConfigReader& reader, const std::string& key, const std::string& otherwise);
std::string activation_name(Activation activation);
/// A finite number above 0, or `otherwise` if the key is absent.
double read_positive(ConfigReader& reader, const char* key, double otherwise);
/// hidden_size / num_heads; ConfigError if that is not whole.
int64_t even_share(ConfigReader& reader, const ModelConfig& config);
void note_dropout(ConfigReader& reader, ModelConfig& config, std::initializer_list<const char*> keys);

/// Reads rope_theta and rope_scaling (transformers 4), or rope_parameters, which holds both (transformers 5), and
/// partial_rotary_factor.
void read_rope(ConfigReader& reader, ModelConfig& config, double default_theta, double default_fraction = 1);
/// Reads one set of rope parameters of transformers 5. `rope` has the values for absent keys.
RopeOptions read_rope_parameters(ConfigReader& reader, ModelConfig& config, const Json& parameters,
                                 const std::string& name, RopeOptions rope);
/// The fraction of each head that is rotated, as a number from which transformers computes the same rotary_dim.
double rotary_fraction(const ModelConfig& config);
/// Writes partial_rotary_factor, as families must whose default is not 1. write_rope() does so for other fractions
/// alone.
void write_rotary_fraction(const ModelConfig& config, OrderedJson& json);
void write_rope(const ModelConfig& config, OrderedJson& json);

/// Reads sliding_window: `otherwise` if the key is absent, 0 if it is null.
int64_t read_sliding_window(ConfigReader& reader, int64_t otherwise);
/// The sliding_window of the qwen families, which counts with use_sliding_window alone; 0: none is used, whatever the
/// key holds (transformers 5 writes 0).
int64_t read_used_window(ConfigReader& reader);
/// Gives every layer this window; 0: none.
void set_sliding_windows(ModelConfig& config, int64_t window);
/// Gives a window to the layers that layer_types calls sliding (chunked, if windows are chunks). Without that key,
/// slides(layer, argument) decides.
void read_layer_types(ConfigReader& reader, ModelConfig& config, int64_t window, bool (*slides)(int64_t, int64_t),
                      int64_t argument);
/// Layers slide but for every period-th, which sees everything: for read_layer_types().
bool all_but_every_nth(int64_t layer, int64_t period);
void write_layer_types(const ModelConfig& config, OrderedJson& json);
/// no_rope_layers has 1 for each layer that rotates; without it every no_rope_layer_interval-th does not.
void read_unrotated_layers(ConfigReader& reader, ModelConfig& config);
void write_unrotated_layers(const ModelConfig& config, OrderedJson& json);
/// The number, or null for 0.
OrderedJson number_or_null(double number);
OrderedJson size_or_null(int64_t number);

}  // namespace nought
