// Attention over spans of tokens and its gradient.
#pragma once

#include <algorithm>

#include "nought/base/math.h"
#include "nought/kernels/ops/heads.h"

namespace nought {

/// Where one sequence lies: its queries among the tokens of q, its keys and values among those of k and v.
struct AttentionSpan {
  int64_t q_begin = 0, q_length = 0, k_begin = 0, k_length = 0;
};

/// out[b, i, h] = sum_j softmax_j(scale * q_i . k_j) v_j over the visible j. q: batch * q_length tokens of num_heads
/// heads, k, v: batch * k_length tokens of num_kv_heads heads (query head h reads kv head h / (num_heads /
/// num_kv_heads)). Query i sits at position k_length - q_length + i; causal: j <= that position; window > 0: and j >
/// position - window. out: [batch * q_length, num_heads * value_dim()]; lse: [batch, num_heads, q_length] f32 (f64 for
/// f64), the log of the sum of exponentials. Streaming softmax in blocks (arXiv 2205.14135): no T x T matrix in memory.
///
/// Sequences of different lengths, or with keys elsewhere, are given as spans in place of batch, q_length and k_length:
/// documents that were packed into a row, or sequences that each have a part of a cache. Nothing is computed between
/// sequences, and a sequence gets the same bits beside whatever others. Queries of the spans lie one behind the other
/// from token 0 on, and for the backward operation their keys too; lse: [num_heads, q_length] of each in turn.
///
/// softcap c > 0: scores become c * tanh(score / c) before the mask. sinks: [num_heads], dtype of out, optional: a
/// score per query head that takes part in the softmax (and in lse) and has no value, so that a head may attend to
/// nothing.
struct AttentionShape {
  int64_t batch = 0, q_length = 0, k_length = 0;
  int64_t num_heads = 0, num_kv_heads = 0, head_dim = 0;
  double scale = 1;
  bool causal = true;
  int64_t window = 0;
  double softcap = 0;
  int64_t v_head_dim = 0;  // 0: head_dim
  std::vector<AttentionSpan> spans = {};

  int64_t value_dim() const { return v_head_dim > 0 ? v_head_dim : head_dim; }
  int64_t num_sequences() const { return spans.empty() ? batch : static_cast<int64_t>(spans.size()); }
  AttentionSpan span(int64_t index) const {
    return spans.empty() ? AttentionSpan{index * q_length, q_length, index * k_length, k_length}
                         : spans[static_cast<size_t>(index)];
  }
  int64_t q_tokens() const { return spans.empty() ? batch * q_length : spans.back().q_begin + spans.back().q_length; }
  /// Up to the end of the last sequence's keys.
  int64_t k_tokens() const;
  /// The operations of one product of queries and keys, such as that of the scores. With a causal mask the masked half
  /// does not count.
  double product_flops() const;

  template <class V>
  void visit(V& v) const {
    v("batch", batch);
    v("q_length", q_length);
    v("k_length", k_length);
    v("num_heads", num_heads);
    v("num_kv_heads", num_kv_heads);
    v("head_dim", head_dim);
    v("scale", scale);
    v("causal", causal);
    v("window", window);
    v("softcap", softcap);
    v("v_head_dim", v_head_dim);
    v("spans", spans);
  }
};

/// The keys that query i of a sequence sees; may be empty.
inline Interval visible_keys(const AttentionShape& s, const AttentionSpan& span, int64_t i) {
  const int64_t position = span.k_length - span.q_length + i;
  const int64_t begin = s.window > 0 ? position - s.window + 1 : 0;
  const int64_t end = s.causal ? position + 1 : span.k_length;
  return {std::clamp<int64_t>(begin, 0, span.k_length), std::clamp<int64_t>(end, 0, span.k_length)};
}

/// See AttentionShape.
struct Attention {
  AttentionShape shape;
  Heads q, k, v;
  Tensor out, lse;
  Tensor sinks = {};

  template <class V>
  void visit(V& visitor) const {
    visitor("q", q.rows(shape.q_tokens(), shape.num_heads, shape.head_dim), kReads);
    visitor("k", k.rows(shape.k_tokens(), shape.num_kv_heads, shape.head_dim), kReads);
    visitor("v", v.rows(shape.k_tokens(), shape.num_kv_heads, shape.value_dim()), kReads);
    visitor("sinks", sinks, kReads.if_defined());
    visitor("out", out, kWrites);
    visitor("lse", lse, kWrites.perhaps_infinite());  // -infinity where a query sees no key
    visitor("shape", shape);
  }
  /// Two products: the scores, and their weighted sum of values.
  double flops() const { return 2 * shape.product_flops(); }
};

/// Overwrites dq, dk, dv (laid out by Heads) from d_out; recomputes the probabilities from q, k and lse. d_sinks [+=]:
/// [num_heads], dtype of out or f32, or undefined if nobody wants it.
struct AttentionBackward {
  AttentionShape shape;
  Heads q, k, v;
  Tensor out, lse, d_out;
  Heads dq, dk, dv;
  Tensor sinks = {}, d_sinks = {};
  bool accumulate_sinks = false;

  template <class V>
  void visit(V& visitor) const {
    visitor("q", q.rows(shape.q_tokens(), shape.num_heads, shape.head_dim), kReads);
    visitor("k", k.rows(shape.k_tokens(), shape.num_kv_heads, shape.head_dim), kReads);
    visitor("v", v.rows(shape.k_tokens(), shape.num_kv_heads, shape.value_dim()), kReads);
    visitor("out", out, kReads);
    visitor("lse", lse, kReads);
    visitor("d_out", d_out, kReads);
    visitor("sinks", sinks, kReads.if_defined());
    visitor("dq", dq.rows(shape.q_tokens(), shape.num_heads, shape.head_dim), kWrites);
    visitor("dk", dk.rows(shape.k_tokens(), shape.num_kv_heads, shape.head_dim), kWrites);
    visitor("dv", dv.rows(shape.k_tokens(), shape.num_kv_heads, shape.value_dim()), kWrites);
    visitor("d_sinks", d_sinks, kWrites.adding(accumulate_sinks).if_defined());
    visitor("shape", shape);
    visitor("accumulate_sinks", accumulate_sinks);
  }
  /// Five products: the scores again, and the gradients of scores, q, k and v.
  double flops() const { return 5 * shape.product_flops(); }
};

}  // namespace nought
