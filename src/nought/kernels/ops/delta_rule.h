// The gated delta rule: attention without a softmax, whose state of a head is one matrix (arXiv 2412.06464).
#pragma once

#include "nought/kernels/ops/short_conv.h"

namespace nought {

/// The sizes of a gated delta rule. Value head h reads key head h / (value_heads / key_heads).
struct DeltaShape {
  int64_t key_heads = 0, value_heads = 0;
  int64_t key_dim = 0, value_dim = 0;  // the width of a head

  int64_t keys() const { return key_heads * key_dim; }
  int64_t values() const { return value_heads * value_dim; }
  /// A row of [q | k | v].
  int64_t width() const { return 2 * keys() + values(); }
  int64_t heads_of_key() const { return value_heads / key_heads; }
  bool operator==(const DeltaShape&) const = default;
  /// The operations of a token, in chunks of 64: five products with a state, and those within the chunk.
  double flops_per_token() const;

  template <class V>
  void visit(V& v) const {
    v("key_heads", key_heads);
    v("value_heads", value_heads);
    v("key_dim", key_dim);
    v("value_dim", value_dim);
  }
};

/// For each span and value head, from a state S of zeros, [key_dim, value_dim]:
///   S <- e^g S;  S <- S + k (beta (v - S^T k))^T;  out = S^T q,
/// with q, k of length 1 (of |x|^2 + 1e-6), q divided by sqrt(key_dim), beta = sigmoid(b) and
/// g = -e^a_log softplus(a + dt_bias). qkv: [tokens, width()] = [q | k | v], ba: [tokens, 2 value_heads] = [b | a],
/// a_log, dt_bias: [value_heads], out: [tokens, values()]. The spans cover all tokens, one behind the other. states:
/// [n, value_heads, key_dim, value_dim] f32 (f64 for f64), optional: S before and after each span.
struct DeltaRule {
  DeltaShape shape;
  Tensor qkv, ba, a_log, dt_bias, out;
  std::vector<StateSpan> spans = {};
  Tensor states = {};

  template <class V>
  void visit(V& v) const {
    v("qkv", qkv, kReads);
    v("ba", ba, kReads);
    v("a_log", a_log, kReads);
    v("dt_bias", dt_bias, kReads);
    v("states", states,
      (any_continues(spans) ? kUpdates : kUpdates.if_defined())
          .of_rows(std::ssize(spans) * shape.value_heads * shape.key_dim));
    v("out", out, kWrites);
    v("shape", shape);
    v("spans", spans);
  }
  double flops() const { return shape.flops_per_token() * static_cast<double>(qkv.rows()); }
};

/// The gradients of a DeltaRule without states, which it computes again from what that read: d_qkv, d_ba, and d_a_log
/// [+=] and d_dt_bias [+=], which have the dtype of a_log or f32.
struct DeltaRuleBackward {
  DeltaShape shape;
  Tensor qkv, ba, a_log, dt_bias, d_out;
  Tensor d_qkv, d_ba, d_a_log, d_dt_bias;
  std::vector<StateSpan> spans = {};
  bool accumulate_weight = false;

  template <class V>
  void visit(V& v) const {
    v("qkv", qkv, kReads);
    v("ba", ba, kReads);
    v("a_log", a_log, kReads);
    v("dt_bias", dt_bias, kReads);
    v("d_out", d_out, kReads);
    v("d_qkv", d_qkv, kWrites);
    v("d_ba", d_ba, kWrites);
    v("d_a_log", d_a_log, kWrites.adding(accumulate_weight));
    v("d_dt_bias", d_dt_bias, kWrites.adding(accumulate_weight));
    v("shape", shape);
    v("spans", spans);
    v("accumulate_weight", accumulate_weight);
  }
  /// The forward pass again, and two products for each of its.
  double flops() const { return 3 * shape.flops_per_token() * static_cast<double>(qkv.rows()); }
};

}  // namespace nought
