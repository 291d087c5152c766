// Attention over spans of tokens, its gradient, and how the results of pieces of one softmax become one.
#pragma once

#include <algorithm>
#include <optional>

#include "nought/base/math.h"
#include "nought/kernels/ops/heads.h"

namespace nought {

/// Where one sequence lies, or a piece of it: its queries among the tokens of q, its keys and values among those of k
/// and v.
struct AttentionSpan {
  int64_t q_begin = 0, q_length = 0, k_begin = 0, k_length = 0;
  /// The position of the first query less that of the first key; may be below 0 (queries that come before the keys) or
  /// beyond the keys. Not given: the queries are the last of the keys' positions.
  std::optional<int64_t> q_offset = {};

  int64_t first_position() const { return q_offset.value_or(k_length - q_length); }
};

/// out[b, i, h] = sum_j softmax_j(scale * q_i . k_j) v_j over the visible j. q: batch * q_length tokens of num_heads
/// heads, k, v: batch * k_length tokens of num_kv_heads heads (query head h reads kv head h / (num_heads /
/// num_kv_heads)). Query i sits at position k_length - q_length + i; causal: j <= that position; window > 0: and j >
/// position - window. A window without a causal mask reaches as far to both sides: j < position + window, too. out:
/// [batch * q_length, num_heads * value_dim()]; lse: [batch, num_heads, q_length] f32 (f64 for f64), the log of the sum
/// of exponentials. A query that sees no key gives 0 and an lse of -infinity. The softmax streams in blocks (arXiv
/// 2205.14135): no T x T matrix is in memory.
///
/// Sequences of different lengths, or with keys elsewhere, are given as spans in place of batch, q_length and k_length:
/// documents that were packed into a row, or sequences that each have a part of a cache. Nothing is computed between
/// sequences, and a sequence gets the same bits beside whatever others. Queries of the spans lie one behind the other
/// from token 0 on; keys lie anywhere, and several spans may read the same ones. lse: [num_heads, q_length] of each in
/// turn.
///
/// Pieces: where queries meet their keys in several calls, as when keys travel round ranks, each call has the keys of a
/// piece, spans with q_offset say where they are, and a span may have no keys. Each call writes the softmax over its
/// piece alone, which MergeAttention joins. So that no piece is rounded, out may be f32 whatever the dtype of q, k, v.
///
/// softcap c > 0: scores become c * tanh(score / c) before the mask. sinks: [num_heads], dtype of q, optional: a score
/// per query head that takes part in the softmax (and in lse) and has no value, so that a head may attend to nothing.
/// If there are several pieces, exactly one takes the sinks.
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
  /// The operations of one product of queries and keys, such as that of the scores. What a causal mask hides does not
  /// count: of a whole sequence, half.
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
  const int64_t position = span.first_position() + i;
  const int64_t begin = s.window > 0 ? position - s.window + 1 : 0;
  const int64_t end = s.causal ? position + 1 : s.window > 0 ? position + s.window : span.k_length;
  return {std::clamp<int64_t>(begin, 0, span.k_length), std::clamp<int64_t>(end, 0, span.k_length)};
}

/// See AttentionShape. A cache may hold k and v in another dtype than that of q: in a float dtype, or in the codes of
/// EncodeHeads with their scales, [num_kv_heads, at least k_tokens()] f32. Then q_i . k_j above is the product of codes
/// times their scales: queries of i8 keys are rounded as EncodeHeads does, but to 14 bits and a sign; the probability
/// meets a value's codes times the value's scale, and lse is that of the probabilities alone.
struct Attention {
  AttentionShape shape;
  Heads q, k, v;
  Tensor out, lse;
  Tensor sinks = {};
  Tensor k_scales = {}, v_scales = {};

  /// Whether k and v are codes.
  bool reads_codes() const { return !is_float(k.base.dtype()); }

  template <class V>
  void visit(V& visitor) const {
    visitor("q", q.rows(shape.q_tokens(), shape.num_heads, shape.head_dim), kReads);
    visitor("k", k.rows(shape.k_tokens(), shape.num_kv_heads, shape.head_dim), kReads);
    visitor("v", v.rows(shape.k_tokens(), shape.num_kv_heads, shape.value_dim()), kReads);
    visitor("sinks", sinks, kReads.if_defined());
    visitor("k_scales", k_scales, kReads.if_defined());
    visitor("v_scales", v_scales, kReads.if_defined());
    visitor("out", out, kWrites);
    visitor("lse", lse, kWrites.perhaps_infinite());  // -infinity where a query sees no key
    visitor("shape", shape);
  }
  /// Two products: the scores, and their weighted sum of values.
  double flops() const { return 2 * shape.product_flops(); }
};

/// dq, dk, dv (laid out by Heads) from d_out; recomputes the probabilities from q, k and lse. out, lse and d_out are
/// those of the whole softmax, over all pieces and sinks: then a piece's gradients are exact, and those of all pieces
/// add up to the whole. out, d_out: dtype of q. d_sinks [+=]: [num_heads], dtype of q or f32, or undefined if nobody
/// wants it. The gradient of the sinks needs no keys: of several pieces exactly one, whose spans have all queries,
/// takes sinks and d_sinks.
///
/// dq [+=] of every query (0 of one that sees no key). dk, dv [+=] of the keys that a span names; other rows stay as
/// they are. Several spans may name the same keys: their parts are added in fp32 in the order of the spans, and rounded
/// once. Each of dq, dk, dv has the dtype of q or f32, so that what several calls add up in is not rounded between.
struct AttentionBackward {
  AttentionShape shape;
  Heads q, k, v;
  Tensor out, lse, d_out;
  Heads dq, dk, dv;
  Tensor sinks = {}, d_sinks = {};
  bool accumulate_sinks = false;
  bool accumulate_q = false, accumulate_kv = false;  // dq; dk and dv

  template <class V>
  void visit(V& visitor) const {
    visitor("q", q.rows(shape.q_tokens(), shape.num_heads, shape.head_dim), kReads);
    visitor("k", k.rows(shape.k_tokens(), shape.num_kv_heads, shape.head_dim), kReads);
    visitor("v", v.rows(shape.k_tokens(), shape.num_kv_heads, shape.value_dim()), kReads);
    visitor("out", out, kReads);
    visitor("lse", lse, kReads);
    visitor("d_out", d_out, kReads);
    visitor("sinks", sinks, kReads.if_defined());
    const Use writes_kv = kWrites.adding(accumulate_kv);
    visitor("dq", dq.rows(shape.q_tokens(), shape.num_heads, shape.head_dim), kWrites.adding(accumulate_q));
    visitor("dk", dk.rows(shape.k_tokens(), shape.num_kv_heads, shape.head_dim), writes_kv);
    visitor("dv", dv.rows(shape.k_tokens(), shape.num_kv_heads, shape.value_dim()), writes_kv);
    visitor("d_sinks", d_sinks, kWrites.adding(accumulate_sinks).if_defined());
    visitor("shape", shape);
    visitor("accumulate_sinks", accumulate_sinks);
    visitor("accumulate_q", accumulate_q);
    visitor("accumulate_kv", accumulate_kv);
  }
  /// Five products: the scores again, and the gradients of scores, q, k and v.
  double flops() const { return 5 * shape.product_flops(); }
};

/// Joins the softmaxes of two pieces of the same queries' keys: (out, lse) becomes what one softmax over the keys of
/// both gives. lse = log(e^lse + e^piece_lse); out = the mean of out and piece_out, weighted by e^lse and e^piece_lse.
/// A piece that a query sees nothing of (-infinity) changes nothing, to the bit; where lse is -infinity, whatever out
/// holds, out and lse become those of the piece. out, piece_out: [q_tokens(), num_heads * value_dim()] f32 (f64 with an
/// lse in f64); lse, piece_lse: as Attention writes them. Of the shape only what is said of queries counts. Sinks need
/// no merge of their own: they are in the piece that took them.
struct MergeAttention {
  AttentionShape shape;
  Tensor piece_out, piece_lse, out, lse;

  template <class V>
  void visit(V& visitor) const {
    visitor("piece_out", piece_out, kReads);
    visitor("piece_lse", piece_lse, kReads);
    visitor("out", out, kUpdates);
    visitor("lse", lse, kUpdates.perhaps_infinite());
    visitor("shape", shape);
  }
};

}  // namespace nought
