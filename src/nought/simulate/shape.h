// ModelShape: the sizes of a decoder that its step time depends on.
#pragma once

#include <string>

#include "nought/base/json_fwd.h"

namespace nought {

struct ModelConfig;

struct ModelShape {
  std::string name;
  double layers = 0, hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn = 0, vocab = 0, positions = 0;
  bool gated = true, tied = false;
  /// Experts: how many a layer has and a token passes, the width of one and of the shared one, and how many layers have
  /// an MLP in their place. 0: the model has none.
  double experts = 0, top_k = 0, expert_ffn = 0, shared_ffn = 0, dense_layers = 0;
  /// Multi-head latent attention: see LatentConfig. kv_rank 0: none.
  double q_rank = 0, kv_rank = 0, own_dim = 0, shared_dim = 0, value_dim = 0;

  double gates() const { return gated ? 2 : 1; }
  double query_width() const { return heads * head_dim; }
  double value_width() const { return heads * (kv_rank > 0 ? value_dim : head_dim); }
  double expert_layers() const { return experts > 0 ? layers - dense_layers : 0; }
  /// Elements of a layer's attention, MLP, or all experts with the shared one and the router.
  double attention_parameters() const;
  double mlp_parameters() const { return hidden * ffn * (gates() + 1); }
  double shared_parameters() const { return hidden * shared_ffn * (gates() + 1) + hidden * experts; }
  double expert_parameters() const { return experts * hidden * expert_ffn * (gates() + 1); }
  double embedding_parameters() const { return hidden * (vocab + positions); }
  /// All elements; tied weights count once.
  double parameters() const;
  /// FLOPs of forward and backward for a token, with the causal half of attention or all of it: see models/flops.h.
  double flops_per_token(double sequence, bool causal) const;
};

ModelShape shape_of(const ModelConfig& config);
/// A model as published.json describes it. ConfigError, with `place` in front, for a size that is missing or not above
/// 0.
ModelShape shape_of(const Json& model, const std::string& name, const std::string& place);

}  // namespace nought
