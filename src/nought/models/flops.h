// The number of floating-point operations that training costs per token.
#pragma once

#include <algorithm>
#include <vector>

#include "nought/models/config.h"

namespace nought {

/// The parameters of the experts that a token does not pass. What is left of a model is called its active parameters.
inline int64_t idle_parameters(const ModelConfig& config) {
  if (!config.experts) return 0;
  const ExpertsConfig& experts = *config.experts;
  const int64_t biases =
      experts.storage == ExpertStorage::fused ? 2 * experts.intermediate_size + config.hidden_size : 0;
  const int64_t expert = 3 * config.hidden_size * experts.intermediate_size + biases;
  return std::count(experts.layers.begin(), experts.layers.end(), true) * (experts.num_experts - experts.rule.top_k) *
         expert;
}

/// The forward and backward passes of the gated delta rule for a token, in all layers that have it.
inline double delta_flops_per_token(const ModelConfig& config) {
  if (!config.delta) return 0;
  const auto layers = std::count(config.layer_kinds.begin(), config.layer_kinds.end(), LayerKind::delta);
  return 3 * static_cast<double>(layers) * config.delta->shape.flops_per_token();
}

/// 6 Psi + 6 L h s: the forward and backward passes of all matrix products and of causal attention, for L layers of it,
/// h = heads x head_dim and sequences of s tokens. Psi counts the parameters that are multiplied: the head once, no
/// embedding look-ups, and of the experts only those that a token passes. Layers of the gated delta rule add what they
/// compute with their states. With causal = false, attention counts 12 L h s, which is the PaLM convention (arXiv
/// 2204.02311).
inline double training_flops_per_token(const ModelConfig& config, int64_t seq_length, bool causal = true) {
  const int64_t lookups = config.tie_word_embeddings ? 0 : config.vocab_size * config.token_width();
  const int64_t positions = config.positions == PositionKind::learned
                                ? (config.max_positions + config.position_offset) * config.hidden_size
                                : 0;
  const auto multiplied = static_cast<double>(config.parameter_count() - lookups - positions - idle_parameters(config));
  const auto attended =
      static_cast<double>(config.attention_layers() * config.num_heads * config.head_dim * seq_length);
  return 6 * multiplied + (causal ? 6 : 12) * attended + delta_flops_per_token(config);
}

class Decoder;

/// What of that a run with frozen parameters does not compute: the weight gradients of what is frozen, 2 per weight,
/// and below the lowest Unit with something to train the gradients of inputs, 2 per weight, of attention, 4 L h s, and
/// of the delta rule. What the lowest such Unit saves itself is not counted.
double frozen_flops_per_token(const Decoder& decoder, int64_t seq_length);

/// FLOPs per token of each Unit of a whole model that is trained in all its parts: their sum is
/// training_flops_per_token(), but for layers with a sliding window, whose attention counts what it sees.
std::vector<double> unit_flops_per_token(const Decoder& whole, int64_t seq_length);

}  // namespace nought
