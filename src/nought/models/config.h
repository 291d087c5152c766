// ModelConfig: what a decoder is made of, read from a Hugging Face config.json and written back as one.
//
// Design goals: one struct with options for all families, so that the decoder never asks which family it is; defaults
// are those of transformers; an option that would change the result and is not supported is refused by its name.
// Non-goals: weights and their names (decoder.h), encoder models, quantised checkpoints.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "nought/nn/layers.h"

namespace nought {

enum class PositionKind : uint8_t { rope, learned };
enum class MlpKind : uint8_t { gated, plain };
/// Where a branch is normalised: its input, its input and its output, or its output alone.
enum class NormPlacement : uint8_t { pre, pre_and_post, post };
/// How a checkpoint keeps q, k and v: three tensors, one [q | k | v] along out, or one [q k v] for each head in turn.
enum class QkvPacking : uint8_t { separate, fused, interleaved };

/// Multi-head latent attention: queries, keys and values come from narrow latent vectors (arXiv 2405.04434).
struct LatentConfig {
  int64_t q_rank = 0;  // 0: queries do not
  int64_t kv_rank = 0;
  int64_t own_dim = 0, shared_dim = 0;  // the parts of a head of q and k: its own, and the rotated one
  int64_t value_dim = 0;
  bool down_bias = false;

  bool operator==(const LatentConfig&) const = default;
};

/// Mixtures of experts in place of MLPs.
struct ExpertsConfig {
  int64_t num_experts = 0;
  int64_t intermediate_size = 0;  // of one expert
  RouterRule rule;
  bool router_bias = false;
  bool choice_bias = false;  // values that steer the choice and are not trained
  ExpertStorage storage = ExpertStorage::separate;
  ExpertActivation activation;
  int64_t shared_intermediate_size = 0;  // of the MLP that every token passes; 0: none
  bool shared_gate = false;
  bool auxiliary_loss = false;  // the loss includes auxiliary_coefficient * (how unbalanced the experts are)
  double auxiliary_coefficient = 0;
  /// With drop_tokens an expert takes at most ceil(capacity_factor * its even share) tokens of a batch.
  double capacity_factor = 0;
  bool drop_tokens = false;
  std::vector<bool> layers;  // which layers have experts; the others have an MLP

  bool operator==(const ExpertsConfig&) const = default;
};

struct ModelConfig {
  std::string family;  // Hugging Face's model_type
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;  // num_heads * head_dim need not be hidden_size
  int64_t max_positions = 0;

  NormKind norm = NormKind::rms;
  double norm_eps = 1e-6;
  double norm_weight_offset = 0;
  NormPlacement norm_placement = NormPlacement::pre;
  /// Attention and MLP both read the block's input, each through its own norm.
  bool parallel_residual = false;

  PositionKind positions = PositionKind::rope;
  RopeOptions rope;                       // rotary_dim 0 without rope
  std::optional<RopeOptions> local_rope;  // of layers with a window, where they differ
  MlpKind mlp = MlpKind::gated;
  Activation activation = Activation::silu;
  double attention_scale = 1;
  double attention_softcap = 0;          // 0: none
  std::vector<int64_t> sliding_windows;  // of each layer; 0: all earlier tokens are seen
  QkNorm qk_norm = QkNorm::none;
  bool attention_sinks = false;
  std::optional<LatentConfig> latent;
  std::optional<ExpertsConfig> experts;
  double embedding_scale = 1;
  double logit_softcap = 0;  // 0: none

  bool qkv_bias = false;
  bool output_bias = false;
  bool mlp_bias = false;
  bool tie_word_embeddings = false;
  WeightLayout weight_layout = WeightLayout::out_in;
  QkvPacking qkv_packing = QkvPacking::separate;
  bool fused_gate_up = false;  // gate and up are one tensor of the checkpoint

  double initializer_range = 0.02;
  /// Projections that end in the residual stream start with initializer_range times this.
  double residual_initializer_scale = 1;

  std::optional<int64_t> bos_token_id;
  std::vector<int64_t> eos_token_ids;
  /// What the config asks for and will not happen, one line each, for the user to read.
  std::vector<std::string> notes;

  bool operator==(const ModelConfig&) const = default;

  /// Reads a config.json; `source` names it in errors. ConfigError.
  static ModelConfig from_json(const nlohmann::json& json, const std::string& source = "config.json");
  /// Reads DIR/config.json. IoError, ConfigError.
  static ModelConfig from_folder(const std::filesystem::path& folder);
  /// The model_types that from_json knows.
  static const std::vector<std::string>& families();

  /// A config.json that transformers loads, for weights of the given dtype.
  nlohmann::ordered_json to_hf_json(DType dtype) const;
  /// Tied weights count once.
  int64_t parameter_count() const;
  /// The window that all layers share, or that all which have one share; 0 if none has.
  int64_t sliding_window() const;
  bool has_experts(int64_t layer) const { return experts && experts->layers[static_cast<size_t>(layer)]; }
};

}  // namespace nought
