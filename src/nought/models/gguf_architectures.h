// GgufArchitecture: what llama.cpp's model of a family takes for granted, one row of a table for each family.
//
// The facts are those of llama.cpp's conversion scripts, src/llama-arch.cpp and src/models.
// Non-goals: which keys a file has (gguf_metadata.h, gguf_config.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "nought/models/config.h"

namespace nought {

/// Whether llama.cpp reads a bias.
enum class GgufBias : uint8_t { optional, never, always };
/// Which layers do not rotate.
enum class GgufUnrotated : uint8_t {
  none,
  every_fourth,  // the fourth, the eighth and so on
  full           // those without a window, where others have one
};
/// How tokens choose experts.
enum class GgufRouting : uint8_t {
  normalised,    // softmax; the weights of the chosen add up to 1
  plain,         // softmax; they do not
  of_chosen,     // the softmax over the chosen
  sigmoid,       // as keys say, but for the sum: the weights are normalised
  input_scaled,  // the sigmoid of one scales its input
  keys           // everything is a key
};

struct GgufArchitecture {
  std::string_view family, name;
  bool interleaved = false;  // rotates neighbours
  bool partial = true;       // rotates a part of each head if it is asked to
  bool llama3_rope = false;  // reads rope_freqs
  bool longrope = false;     // reads rope_factors_long and _short
  /// Every so many layers one sees everything; 1: none has a window; 0: the window is ignored.
  int64_t window_period = 0;
  bool keeps_window = false;  // a window that it ignores is a key all the same
  GgufUnrotated unrotated = GgufUnrotated::none;
  bool own_scale = false;      // the factor on scores is no part of the queries' weights
  bool multiplies = false;     // reads the factors on embeddings, branches, scores and logits
  bool square = false;         // heads * head_dim is the hidden size
  bool heads_of_keys = false;  // there are as many heads of keys as of queries
  bool untied = false;         // has a head of its own
  GgufBias qkv_bias = GgufBias::optional, output_bias = GgufBias::optional, mlp_bias = GgufBias::optional;
  GgufRouting routing = GgufRouting::normalised;
  bool dense_lead = false;        // the first layers may have no experts
  bool spread_experts = false;    // every so many layers has experts
  bool width_of_experts = false;  // feed_forward_length is that of experts
  bool like_gpt = false;          // gelu by tanh, scores scaled by head_dim alone
  std::string_view mlp_norm = "ffn_norm", final_norm = "output_norm";
};

/// The row of a model's family. ConfigError, which names those that have one, for another.
const GgufArchitecture& gguf_architecture(const ModelConfig& config);
/// The model_types that llama.cpp has a model of, of those that this program knows.
const std::vector<std::string>& gguf_families();
/// ConfigError for an option that llama.cpp's model does not have. `notes` gets a line for each that it computes
/// otherwise.
void check_for_gguf(const ModelConfig& config, std::vector<std::string>& notes);
/// Every so many layers one sees everything, and the others have a window; 0: it is not that regular. `all`: what it is
/// if each layer has one.
int64_t window_period(const ModelConfig& config, int64_t all);

}  // namespace nought
