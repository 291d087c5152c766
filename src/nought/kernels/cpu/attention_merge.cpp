// Joins the softmaxes of two pieces of keys: a weighted mean of two rows for each head of each query, bound by memory.
#include <algorithm>
#include <cmath>
#include <limits>

#include "nought/kernels/check.h"
#include "nought/kernels/cpu/cpu.h"
#include "nought/kernels/cpu/parallel.h"
#include "nought/kernels/cpu/targets.h"
#include "nought/kernels/reference/reference.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nought/kernels/cpu/attention_merge.cpp"
#include <hwy/foreach_target.h>

#include "nought/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nought::cpu::HWY_NAMESPACE {

/// out: [count] = out_weight * out + piece_weight * piece. A weight of 0 hides what its row holds.
inline void mix_rows(const float* piece, float piece_weight, float out_weight, int64_t count, float* out) {
  const F32 d;
  if (out_weight == 0) return void(std::copy_n(piece, count, out));
  const auto of_piece = hn::Set(d, piece_weight), of_out = hn::Set(d, out_weight);
  sweep(d, 0, count, [=](int64_t i, auto access) HWY_ATTR {
    const auto scaled = hn::Mul(of_piece, access.load(d, piece + i));
    access.store(d, hn::MulAdd(of_out, access.load(d, out + i), scaled), out + i);
  });
}

/// The queries of a span that lie among the tokens.
void merge_queries(const MergeAttention& op, const AttentionSpan& span, Interval tokens) {
  const int64_t heads = op.shape.num_heads, value_dim = op.shape.value_dim();
  const Interval queries = intersect(tokens, {span.q_begin, span.q_begin + span.q_length});
  const float *pieces = op.piece_out.data<float>(), *piece_lse = op.piece_lse.data<float>() + span.q_begin * heads;
  float *out = op.out.data<float>(), *all_lse = op.lse.data<float>() + span.q_begin * heads;
  for (int64_t token = queries.begin; token < queries.end; ++token)
    for (int64_t head = 0; head < heads; ++head) {
      const int64_t statistic = head * span.q_length + token - span.q_begin, row = (token * heads + head) * value_dim;
      float& lse = all_lse[statistic];
      const float piece = piece_lse[statistic], largest = std::max(lse, piece);
      if (piece == -std::numeric_limits<float>::infinity()) continue;
      const float own_weight = std::exp(lse - largest), weight = std::exp(piece - largest), total = own_weight + weight;
      mix_rows(pieces + row, weight / total, own_weight / total, value_dim, out + row);
      lse = largest + std::log(total);
    }
}

}  // namespace nought::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nought::cpu {
HWY_EXPORT(merge_queries);

void run(const MergeAttention& op) {
  check(op);
  if (op.out.dtype() == DType::f64) return reference::run(op);
  const AttentionShape& s = op.shape;
  parallel_rows(s.q_tokens(), s.num_heads * s.value_dim(), [&](int64_t begin, int64_t end) {
    for (int64_t sequence = 0; sequence < s.num_sequences(); ++sequence)
      HWY_DYNAMIC_DISPATCH(merge_queries)(op, s.span(sequence), {begin, end});
  });
}

}  // namespace nought::cpu
#endif
