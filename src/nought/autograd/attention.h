// The differentiable functions of attention: they work on one packed tensor of queries, keys and values.
#pragma once

#include "nought/autograd/tape.h"
#include "nought/comm/communicator.h"

namespace nought {

/// The layout of a packed projection, [tokens, width]: [q | k | v], or with `interleaved` [q k v] for each head in turn
/// (then there are as many key/value heads as query heads).
struct PackedHeads {
  int64_t num_heads = 0, num_kv_heads = 0, head_dim = 0;
  int64_t v_head_dim = 0;   // 0: head_dim
  int64_t rope_offset = 0;  // where the rotated elements of a head begin
  bool interleaved = false;

  int64_t value_dim() const { return v_head_dim > 0 ? v_head_dim : head_dim; }
  int64_t width() const { return (num_heads + num_kv_heads) * head_dim + num_kv_heads * value_dim(); }
  /// The width of what attention gives.
  int64_t out_width() const { return num_heads * value_dim(); }

  Heads q(const Tensor& qkv) const { return {qkv, 0, width(), head_stride()}; }
  Heads k(const Tensor& qkv) const {
    return {qkv, interleaved ? head_dim : num_heads * head_dim, width(), head_stride()};
  }
  Heads v(const Tensor& qkv) const {
    return {qkv, interleaved ? 2 * head_dim : (num_heads + num_kv_heads) * head_dim, width(), head_stride()};
  }

 private:
  int64_t head_stride() const { return interleaved ? 2 * head_dim + value_dim() : 0; }
};

/// Tables of cos and sin, [max_positions, rotary_dim / 2].
struct RopeTables {
  Tensor cos, sin;
  int64_t rotary_dim = 0;
  bool interleaved = false;
  int64_t long_begin = 0;  // the first row of those for long sequences; 0: all rotate alike
};

/// Rotates q and k of a packed projection. positions: [tokens] i32. In place.
Var rope(Tape& tape, const Var& qkv, const PackedHeads& heads, const RopeTables& tables, const Tensor& positions);

/// Multiplies the heads of q by the cos of their position; sin is 0. In place.
Var scale_queries(Tape& tape, const Var& qkv, const PackedHeads& heads, const RopeTables& factors,
                  const Tensor& positions);

/// How queries and keys are normalised: each head by itself, or all heads of a token as one vector.
struct HeadNorms {
  /// [head_dim], or [num_heads * head_dim] and [num_kv_heads * head_dim]; undefined: heads count as they are.
  ParameterView q_weight = {}, k_weight = {};
  double eps = 1e-6;
  double weight_offset = 0;
  bool per_head = true;
  /// Not per_head: the ranks that each have as many elements of the vectors, whose squares are added over them; null:
  /// one rank has them whole. It outlives the tape.
  Communicator* ranks = nullptr;
};
/// RMS norm of q and k of a packed projection. In place. Collective if ranks share the vectors, in both passes.
Var norm_heads(Tape& tape, const Var& qkv, const PackedHeads& heads, const HeadNorms& norms);

/// Packs the projections of multi-head latent attention (arXiv 2405.04434) as [q | k | v]: k of a head is its own part,
/// then the rotated part that all heads share. q: [tokens, num_heads * head_dim]; kv: [tokens, num_heads * (rope_offset
/// + v_head_dim)], each head's [own part of k | v]; shared_key: [tokens, head_dim - rope_offset].
Var pack_latent(Tape& tape, const Var& q, const Var& kv, const Var& shared_key, const PackedHeads& heads);

/// Self-attention over batch sequences of `length` tokens, or over spans, whose keys are their queries' tokens
/// -> [tokens, heads.out_width()].
struct AttentionOptions {
  int64_t batch = 0, length = 0;
  double scale = 1;
  bool causal = true;
  int64_t window = 0;
  double softcap = 0;
  ParameterView sinks = {};  // [num_heads]: a score of each head that has no value; may have those of more heads:
  int64_t first_sink = 0;    // that of the first head here
  std::vector<AttentionSpan> spans = {};
};
Var attention(Tape& tape, const Var& qkv, const PackedHeads& heads, const AttentionOptions& options);

}  // namespace nought
