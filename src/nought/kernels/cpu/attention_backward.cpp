// The gradients of attention (arXiv 2307.08691, algorithm 2): the probabilities of each tile are computed again from
// the scores and the log of the sum of exponentials.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "nought/kernels/check.h"
#include "nought/kernels/cpu/attention.h"
#include "nought/kernels/cpu/cpu.h"
#include "nought/kernels/cpu/dot_tiles.h"
#include "nought/kernels/cpu/scratch.h"
#include "nought/kernels/cpu/targets.h"
#include "nought/kernels/reference/reference.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nought/kernels/cpu/attention_backward.cpp"
#include <hwy/foreach_target.h>

#include "nought/kernels/cpu/attention-inl.h"
#include "nought/kernels/cpu/attention_factors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nought::cpu::HWY_NAMESPACE {

template <class T>
HWY_INLINE float dot_rows(const T* a, const T* b, int64_t count) {
  const F32 d;
  auto sum = hn::Zero(d);
  sweep(d, 0, count,
        [&](int64_t i, auto access) HWY_ATTR { sum = hn::MulAdd(access.load(d, a + i), access.load(d, b + i), sum); });
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

/// What the rows have from the forward pass. d_sinks: what they give to the sink of each head, [num_heads], or null.
inline void load_statistics(const AttentionBackward& op, const AttentionRows& rows, Interval panel, float* lse,
                            float* delta, float* d_sinks) {
  const int64_t value_dim = op.shape.value_dim();
  const Heads layout{op.out, 0, op.shape.num_heads * value_dim};
  const float* saved = op.lse.data<float>();
  visit(op.out.dtype(), [&](auto tag) HWY_ATTR {
    using T = typename decltype(tag)::type;
    const T *out = op.out.data<T>(), *d_out = op.d_out.data<T>();
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const int64_t i = row - panel.begin, head = rows.head(row), at = layout.at(rows.token(row), head, value_dim);
      delta[i] = dot_rows(out + at, d_out + at, value_dim);
      lse[i] = saved[rows.lse(row)];
      if (d_sinks) d_sinks[head] -= std::exp(element(op.sinks, head) - lse[i]) * delta[i];
    }
  });
}

/// Probabilities and gradients of scores of one part with one block. lse, delta: those of the part's rows.
template <class Factors>
void differentiate_tile(const Factors& factors, const AttentionRows& rows, const SeenTile& seen,
                        const ScoreScale& scale, const ScoreTiles& tiles, const float* lse, const float* delta) {
  const F32 d;
  constexpr float kLog2e = std::numbers::log2e_v<float>;
  const int64_t keys = seen.keys.size();
  if (scale.is_pass()) scale.pass(tiles.scores, keys, seen.part.size());
  const bool some = seen.masked || scale.cap > 0;  // one instantiation less: caps are rare
  Visibility visible;
  if (some) visible.load(rows, seen.part, seen.keys.begin);
  for (int64_t column = 0; column < seen.part.size(); column += lanes()) {
    const RowStatistics row{hn::Mul(hn::LoadU(d, lse + column), hn::Set(d, kLog2e)), hn::LoadU(d, delta + column),
                            scale.factor * kLog2e, scale.cap};
    const auto by = [&](auto capped, const auto& see) HWY_ATTR {
      factors.template differentiate<decltype(capped)::value>(tiles, column, keys, see, row);
    };
    if (some) {
      const SeeSome see{hn::LoadU(d, visible.begin + column), hn::LoadU(d, visible.end + column)};
      scale.cap > 0 ? by(std::true_type(), see) : by(std::false_type(), see);
    } else {
      by(std::false_type(), SeeAll{});
    }
  }
}

/// What a panel has gathered of dq: [panel][head_dim] as blocks of transposed rows.
inline void store_queries(const AttentionBackward& op, const AttentionRows& rows, Interval panel, const float* dq) {
  const AttentionShape& s = op.shape;
  const int64_t width = padded(s.head_dim);
  const Scratch group(bytes_for<float>(lanes() * width));
  float* transposed = group.data<float>();
  float factors[hn::MaxLanes(F32())];
  std::fill_n(factors, lanes(), static_cast<float>(s.scale));
  for (int64_t i = 0; i < panel.size(); i += lanes()) {
    const int64_t column = i % kAttentionBlock;
    const Interval part{panel.begin + i, std::min(panel.begin + i + lanes(), panel.end)};
    transpose(dq + (i - column) * width + column, kAttentionBlock, width, lanes(), transposed, width);
    store_rows(rows, op.dq, s.head_dim, part, factors, transposed, width, op.accumulate_q);
  }
}

/// All rows of one key/value head of one sequence. dk, dv: from the sequence's first key on; they sum over its panels
/// in order, dq over the key blocks in order.
template <class Factors>
void add_sequence(const AttentionBackward& op, const AttentionRows& rows, Tile dk, Tile dv, float* d_sinks) {
  const AttentionShape& s = op.shape;
  const int64_t width = dk.stride, keys = rows.span.k_length;
  const int64_t height = round_up(rows.panel(0).size(), kAttentionBlock), tile = kAttentionBlock * kAttentionBlock;
  const Scratch scratch(bytes_for<float>(height * (width + 2) + 2 * tile));
  float *dq = scratch.data<float>(), *lse = dq + height * width, *delta = lse + height;
  const ScoreTiles tiles{{delta + height, kAttentionBlock}, {delta + height + tile, kAttentionBlock}};
  const ScoreScale scale(s);
  Factors factors(op, rows);

  for (int64_t index = 0; index < rows.num_panels(); ++index) {
    const Interval panel = rows.panel(index);
    if (rows.keys(panel).empty() && op.accumulate_q && !d_sinks) continue;
    std::fill_n(dq, height * width, 0.0f);
    // Lanes behind the last row have a probability of 0.
    std::fill_n(lse, height, std::numeric_limits<float>::infinity());
    std::fill_n(delta, height, 0.0f);
    load_statistics(op, rows, panel, lse, delta, d_sinks);
    factors.load_panel(panel);
    for_each_block(rows.keys(panel), keys, [&](Interval block) HWY_ATTR {
      factors.load_block(block);
      fetch_keys(rows, op.k, s.head_dim, block.end);
      fetch_keys(rows, op.v, s.value_dim(), block.end);
      for_each_part(rows, panel, block, [&](const SeenTile& seen) HWY_ATTR {
        const int64_t row = seen.part.begin - panel.begin, column = row % kAttentionBlock, size = seen.part.size();
        const Interval in_block{seen.keys.begin - block.begin, seen.keys.end - block.begin};
        factors.score(row, size, in_block, tiles);
        differentiate_tile(factors, rows, seen, scale, tiles, lse + row, delta + row);
        factors.add_gradients(tiles, row, size, in_block, dq + (row - column) * width + column,
                              {dk.data + seen.keys.begin * dk.stride, dk.stride},
                              {dv.data + seen.keys.begin * dv.stride, dv.stride});
      });
    });
    store_queries(op, rows, panel, dq);
  }
}

/// One key/value head of sequences that share keys: dk and dv sum over the sequences in order. d_sinks: [sequences,
/// num_heads], or null.
void attend_backward(const AttentionBackward& op, const KeyGroup& group, int64_t kv_head, float* d_sinks) {
  const AttentionShape& s = op.shape;
  const int64_t key_width = padded(s.head_dim), value_width = padded(s.value_dim()), keys = group.keys.size();
  const Scratch gradients(bytes_for<float>(keys * (key_width + value_width)));
  const Tile dk{gradients.data<float>(), key_width}, dv{dk.data + keys * key_width, value_width};
  std::fill_n(dk.data, keys * (key_width + value_width), 0.0f);
  for (const int64_t sequence : group.sequences) {
    const AttentionRows rows{s, s.span(sequence), kv_head};
    const int64_t first = rows.span.k_begin - group.keys.begin;
    const Tile own_dk{dk.data + first * key_width, key_width}, own_dv{dv.data + first * value_width, value_width};
    float* sinks = d_sinks ? d_sinks + sequence * s.num_heads : nullptr;
#if HWY_TARGET == HWY_AVX3
    if (takes_dots(s, op.out.dtype())) {
      add_sequence<DotFactors>(op, rows, own_dk, own_dv, sinks);
      continue;
    }
#endif
    add_sequence<FloatFactors>(op, rows, own_dk, own_dv, sinks);
  }
  store_keys(op.dk, group.keys, kv_head, s.head_dim, static_cast<float>(s.scale), dk, op.accumulate_kv);
  store_keys(op.dv, group.keys, kv_head, s.value_dim(), 1, dv, op.accumulate_kv);
}

}  // namespace nought::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nought::cpu {
HWY_EXPORT(attend_backward);

namespace {

/// The sequences in groups that share no keys. What has no keys shares none.
std::vector<KeyGroup> key_groups(const AttentionShape& shape) {
  std::vector<KeyGroup> alone, groups;
  for (int64_t sequence = 0; sequence < shape.num_sequences(); ++sequence) {
    const AttentionSpan span = shape.span(sequence);
    alone.push_back({{span.k_begin, span.k_begin + span.k_length}, {sequence}});
  }
  const auto begins_first = [](const KeyGroup& a, const KeyGroup& b) { return a.keys.begin < b.keys.begin; };
  std::stable_sort(alone.begin(), alone.end(), begins_first);
  int64_t end = 0;  // of the keys so far
  size_t last = 0;  // the group that reaches it
  for (KeyGroup& one : alone) {
    if (one.keys.empty() || one.keys.begin >= end) {
      if (!one.keys.empty()) last = groups.size(), end = one.keys.end;
      groups.push_back(std::move(one));
    } else {
      groups[last].keys.end = end = std::max(end, one.keys.end);
      groups[last].sequences.push_back(one.sequences.front());
    }
  }
  for (KeyGroup& group : groups) std::sort(group.sequences.begin(), group.sequences.end());
  return groups;
}

/// d_sinks [+=] the sums of the sequences: [sequences, num_heads].
void write_sinks(const AttentionBackward& op, const std::vector<float>& sums) {
  visit_float(op.d_sinks.dtype(), [&](auto tag) {
    using G = typename decltype(tag)::type;
    G* out = op.d_sinks.data<G>();
    for (int64_t h = 0; h < op.shape.num_heads; ++h) {
      float sum = op.accumulate_sinks ? static_cast<float>(out[h]) : 0;
      for (int64_t b = 0; b < op.shape.num_sequences(); ++b)
        sum += sums[static_cast<size_t>(b * op.shape.num_heads + h)];
      out[h] = static_cast<G>(sum);
    }
  });
}

}  // namespace

void run(const AttentionBackward& op) {
  check(op);
  if (op.out.dtype() == DType::f64) return reference::run(op);
  // One row of sums per sequence, and one task per key: no two tasks share a sum.
  const int64_t heads = op.d_sinks ? op.shape.num_heads : 0, kv_heads = op.shape.num_kv_heads;
  std::vector<float> sinks(static_cast<size_t>(op.shape.num_sequences() * heads));
  const std::vector<KeyGroup> groups = key_groups(op.shape);
  const int64_t tasks = std::ssize(groups) * kv_heads;
#pragma omp parallel for schedule(dynamic, 1)
  for (int64_t task = 0; task < tasks; ++task) {
    const KeyGroup& group = groups[static_cast<size_t>(task / kv_heads)];
    HWY_DYNAMIC_DISPATCH(attend_backward)(op, group, task % kv_heads, op.d_sinks ? sinks.data() : nullptr);
  }
  if (op.d_sinks) write_sinks(op, sinks);
}

}  // namespace nought::cpu
#endif
