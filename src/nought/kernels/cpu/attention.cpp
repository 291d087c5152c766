// Attention with a streaming softmax (arXiv 2205.14135, 2307.08691): per panel of rows, one pass over the key blocks.
#include "nought/kernels/cpu/attention.h"

#include <cmath>
#include <limits>

#include "nought/kernels/cpu/cpu.h"
#include "nought/kernels/cpu/scratch.h"
#include "nought/kernels/cpu/targets.h"
#include "nought/kernels/reference/reference.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nought/kernels/cpu/attention.cpp"
#include <hwy/foreach_target.h>

#include "nought/kernels/cpu/attention-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nought::cpu::HWY_NAMESPACE {

/// What a panel of rows has gathered so far.
struct Gathered {
  const float* queries;  // [rows, width], times the scale
  float* out;            // [rows, v_width]: sum of exp(score - largest) * value
  float* largest;        // [rows]
  float* total;          // [rows]: sum of exp(score - largest)
  int64_t width, v_width;
};

/// Turns a row of scores into exp(score - largest) where visible and 0 elsewhere, and rescales what was gathered
/// before to the new largest score.
inline void stream_softmax(Interval visible, int64_t columns, float* scores, const Gathered& all, int64_t row) {
  const F32 d;
  if (visible.empty()) {
    std::fill(scores, scores + columns, 0.0f);
    return;
  }
  const auto minus_infinity = hn::Set(d, -std::numeric_limits<float>::infinity());
  auto top = minus_infinity;
  for (int64_t j = 0; j < columns; j += lanes()) {
    top = hn::Max(top, hn::IfThenElse(columns_in(visible, j), hn::Load(d, scores + j), minus_infinity));
  }
  const float before = all.largest[row], largest = std::max(before, hn::GetLane(hn::MaxOfLanes(d, top)));
  auto sum = hn::Zero(d);
  for (int64_t j = 0; j < columns; j += lanes()) {
    const auto power = exp(d, hn::Sub(hn::Load(d, scores + j), hn::Set(d, largest)));
    const auto weight = hn::IfThenElseZero(columns_in(visible, j), power);
    hn::Store(weight, d, scores + j);
    sum = hn::Add(sum, weight);
  }
  const float rescale = before == largest ? 1.0f : std::exp(before - largest);
  if (rescale != 1.0f) scale_row(rescale, all.v_width, all.out + row * all.v_width);
  all.largest[row] = largest;
  all.total[row] = all.total[row] * rescale + hn::GetLane(hn::SumOfLanes(d, sum));
}

/// What a row has gathered before its first key: nothing, or its head's sink.
void start_softmax(const Attention& op, const AttentionRows& rows, Interval panel, const Gathered& all) {
  std::fill(all.largest, all.largest + panel.size(), -std::numeric_limits<float>::infinity());
  std::fill(all.total, all.total + panel.size(), op.sinks ? 1.0f : 0.0f);
  if (!op.sinks) return;
  for (int64_t row = panel.begin; row < panel.end; ++row)
    all.largest[row - panel.begin] = element(op.sinks, rows.head(row));
}

/// One panel of rows: softmax(scale * q k^T) v.
void attend(const Attention& op, const AttentionRows& rows, Interval panel) {
  const AttentionShape& s = op.shape;
  const int64_t width = padded(s.head_dim), v_width = padded(s.value_dim()), height = round_up(panel.size(), 4);
  const auto floats = [](int64_t count) { return count * static_cast<int64_t>(sizeof(float)); };
  const Scratch queries(floats(height * width)), out(floats(height * v_width)), statistics(floats(2 * height));
  const Scratch keys(floats(kAttentionBlock * width)), keys_transposed(floats(s.head_dim * kAttentionBlock));
  const Scratch values(floats(kAttentionBlock * v_width)), scores(floats(kAttentionBlock * kAttentionBlock));
  const Gathered all{queries.data<float>(),
                     out.data<float>(),
                     statistics.data<float>(),
                     statistics.data<float>() + height,
                     width,
                     v_width};
  const auto softcap = static_cast<float>(s.softcap);

  std::fill(queries.data<float>(), queries.data<float>() + height * width, 0.0f);
  std::fill(all.out, all.out + height * v_width, 0.0f);
  start_softmax(op, rows, panel, all);
  for (int64_t row = panel.begin; row < panel.end; ++row) {
    load_row(op.q, rows.token(row), rows.head(row), s.head_dim, static_cast<float>(s.scale),
             queries.data<float>() + (row - panel.begin) * width);
  }

  for_each_block(rows.keys(panel), s.k_length, [&](Interval block) HWY_ATTR {
    load_keys(rows, op.k, s.head_dim, block, keys.data<float>());
    transpose(keys.data<float>(), block.size(), s.head_dim, width, keys_transposed.data<float>());
    load_keys(rows, op.v, s.value_dim(), block, values.data<float>());
    for_each_block(panel, panel.end, [&](Interval part) HWY_ATTR {
      const Interval seen = rows.keys_from(block.begin, part);
      if (seen.empty()) return;
      const int64_t first = part.begin - panel.begin;
      float* tile = scores.data<float>();
      multiply({all.queries + first * width, width, 1}, {keys_transposed.data<float>(), kAttentionBlock}, s.head_dim,
               {tile, kAttentionBlock}, part.size(), seen.size(), false);
      for (int64_t i = 0; i < part.size(); ++i) {
        if (softcap > 0) cap_scores(softcap, padded(seen.size()), tile + i * kAttentionBlock);
        stream_softmax(rows.keys_in_block(part.begin + i, block.begin), padded(seen.size()), tile + i * kAttentionBlock,
                       all, first + i);
      }
      multiply({tile, kAttentionBlock, 1}, {values.data<float>(), v_width}, seen.size(),
               {all.out + first * v_width, v_width}, part.size(), s.value_dim(), true);
    });
  });

  const Heads result{op.out, 0, s.num_heads * s.value_dim()};
  float* lse = op.lse.data<float>();
  for (int64_t row = panel.begin; row < panel.end; ++row) {
    const int64_t i = row - panel.begin;
    const float total = all.total[i];  // 0 if the row sees nothing: its result is 0, its lse -infinity
    store_row(result, rows.token(row), rows.head(row), s.value_dim(), total == 0 ? 0 : 1 / total,
              all.out + i * v_width);
    lse[rows.lse(row)] = all.largest[i] + std::log(total);
  }
}

}  // namespace nought::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nought::cpu {
HWY_EXPORT(attend);

void run(const Attention& op) {
  check(op);
  if (op.out.dtype() == DType::f64) return reference::run(op);
  const int64_t panels = AttentionRows{op.shape}.num_panels();
  const int64_t heads = op.shape.batch * op.shape.num_kv_heads;
#pragma omp parallel for schedule(dynamic, 1)
  for (int64_t task = 0; task < heads * panels; ++task) {
    // Late panels see the most keys under a causal mask: they start first, so that no thread ends alone.
    const int64_t panel = panels - 1 - task / heads, head = task % heads;
    const AttentionRows rows{op.shape, head / op.shape.num_kv_heads, head % op.shape.num_kv_heads};
    HWY_DYNAMIC_DISPATCH(attend)(op, rows, rows.panel(panel));
  }
}

}  // namespace nought::cpu
#endif
