// The gradients of attention (arXiv 2307.08691, algorithm 2): the probabilities of each tile are computed again from
// the scores and the log of the sum of exponentials.
#include <cmath>
#include <vector>

#include "nought/kernels/cpu/attention.h"
#include "nought/kernels/cpu/cpu.h"
#include "nought/kernels/cpu/scratch.h"
#include "nought/kernels/cpu/targets.h"
#include "nought/kernels/reference/reference.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nought/kernels/cpu/attention_backward.cpp"
#include <hwy/foreach_target.h>

#include "nought/kernels/cpu/attention-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nought::cpu::HWY_NAMESPACE {

/// Padded head_dim of queries and keys, and of values.
struct Widths {
  explicit Widths(const AttentionShape& s) : key(padded(s.head_dim)), value(padded(s.value_dim())) {}
  int64_t key, value;
};

/// A panel of rows in fp32.
struct Panel {
  float *queries, *dq;  // [rows, width.key]; the queries times the scale
  float* d_out;         // [rows, width.value]
  float *lse, *delta;   // [rows]; delta = sum of d_out * out, what a row's gradient loses to its softmax
};

/// A block of keys in fp32.
struct KeyBlock {
  float *keys, *keys_transposed, *values_transposed;
  float *dk, *dv;  // [block, width.key] and [block, width.value] of the sums over all rows
};

/// One tile of probabilities and of the gradients of scores.
struct ScoreTiles {
  float *probabilities, *d_scores;
};

/// probabilities = exp(score - lse) where visible, and d_scores = probabilities * (d_probability - delta) * slope, in
/// place. The slope of a capped score is 1 - (score / cap)^2, otherwise 1.
template <bool kCapped>
void softmax_backward(Interval visible, int64_t columns, float lse, float delta, [[maybe_unused]] float cap,
                      float* scores, float* d_probabilities) {
  const F32 d;
  if constexpr (kCapped) cap_scores(cap, columns, scores);
  for (int64_t j = 0; j < columns; j += lanes()) {
    const auto score = hn::Load(d, scores + j);
    const auto power = exp(d, hn::Sub(score, hn::Set(d, lse)));
    const auto probability = hn::IfThenElseZero(columns_in(visible, j), power);
    hn::Store(probability, d, scores + j);
    const auto difference = hn::Sub(hn::Load(d, d_probabilities + j), hn::Set(d, delta));
    auto d_score = hn::Mul(probability, difference);
    if constexpr (kCapped) {
      const auto ratio = hn::Mul(score, hn::Set(d, 1 / cap));
      d_score = hn::Mul(d_score, hn::NegMulAdd(ratio, ratio, hn::Set(d, 1.0f)));
    }
    hn::Store(d_score, d, d_probabilities + j);
  }
}

/// d_sinks: what the rows give to the sink of each head, [num_heads], or null.
inline void load_panel(const AttentionBackward& op, const AttentionRows& rows, Interval panel, const Panel& to,
                       float* d_sinks) {
  const AttentionShape& s = op.shape;
  const Widths width(s);
  const int64_t height = round_up(panel.size(), 4);
  const int64_t stride = s.num_heads * s.value_dim();
  const Heads out{op.out, 0, stride}, d_out{op.d_out, 0, stride};
  const Scratch scratch(width.value * static_cast<int64_t>(sizeof(float)));
  std::fill(to.queries, to.queries + height * width.key, 0.0f);
  std::fill(to.dq, to.dq + height * width.key, 0.0f);
  std::fill(to.d_out, to.d_out + height * width.value, 0.0f);
  std::fill(scratch.data<float>(), scratch.data<float>() + width.value, 0.0f);
  for (int64_t row = panel.begin; row < panel.end; ++row) {
    const int64_t i = row - panel.begin, token = rows.token(row), head = rows.head(row);
    load_row(out, token, head, s.value_dim(), 1, scratch.data<float>());
    load_row(d_out, token, head, s.value_dim(), 1, to.d_out + i * width.value);
    to.delta[i] = dot_rows(scratch.data<float>(), to.d_out + i * width.value, width.value);
    load_row(op.q, token, head, s.head_dim, static_cast<float>(s.scale), to.queries + i * width.key);
    to.lse[i] = op.lse.data<float>()[rows.lse(row)];
    if (d_sinks) d_sinks[head] -= std::exp(element(op.sinks, head) - to.lse[i]) * to.delta[i];
  }
}

/// Adds what the rows `part` and the keys `seen` of one block give each other. `first` is the part's place in the
/// panel.
inline void attend_block_backward(const AttentionRows& rows, Interval part, int64_t first, Interval seen,
                                  const Panel& panel, const KeyBlock& keys, const ScoreTiles& tiles) {
  const AttentionShape& s = rows.shape;
  const Widths width(s);
  const int64_t stride = kAttentionBlock;
  const Tile queries{panel.queries + first * width.key, width.key};
  const Tile d_out{panel.d_out + first * width.value, width.value};
  multiply({queries.data, width.key, 1}, {keys.keys_transposed, stride}, s.head_dim, {tiles.probabilities, stride},
           part.size(), seen.size(), false);
  multiply({d_out.data, width.value, 1}, {keys.values_transposed, stride}, s.value_dim(), {tiles.d_scores, stride},
           part.size(), seen.size(), false);
  const auto backward = s.softcap > 0 ? softmax_backward<true> : softmax_backward<false>;
  for (int64_t i = 0; i < part.size(); ++i) {
    backward(rows.keys_in_block(part.begin + i, seen.begin), padded(seen.size()), panel.lse[first + i],
             panel.delta[first + i], static_cast<float>(s.softcap), tiles.probabilities + i * stride,
             tiles.d_scores + i * stride);
  }
  multiply({tiles.probabilities, 1, stride}, d_out, part.size(), {keys.dv, width.value}, seen.size(), s.value_dim(),
           true);
  multiply({tiles.d_scores, 1, stride}, queries, part.size(), {keys.dk, width.key}, seen.size(), s.head_dim, true);
  multiply({tiles.d_scores, stride, 1}, {keys.keys, width.key}, seen.size(), {panel.dq + first * width.key, width.key},
           part.size(), s.head_dim, true);
}

/// All rows of one key/value head. dk and dv sum over its panels in order, dq over the key blocks in order.
void attend_backward(const AttentionBackward& op, const AttentionRows& rows, float* d_sinks) {
  const AttentionShape& s = op.shape;
  const Widths width(s);
  const int64_t widest = std::max(width.key, width.value);
  const int64_t height = std::min(round_up(rows.count(), 4), kAttentionPanel);
  const int64_t all_keys = round_up(rows.span.k_length, 4);
  const auto floats = [](int64_t count) { return count * static_cast<int64_t>(sizeof(float)); };
  const Scratch gradients(floats(all_keys * (width.key + width.value)));
  const Scratch rows_scratch(floats(height * (2 * width.key + width.value))), statistics(floats(2 * height));
  const Scratch blocks(floats(kAttentionBlock * (widest + width.key + width.value)));
  const Scratch tile_scratch(floats(2 * kAttentionBlock * kAttentionBlock));
  float* dk = gradients.data<float>();
  float* dv = dk + all_keys * width.key;
  float* panel_rows = rows_scratch.data<float>();
  const Panel panel{panel_rows, panel_rows + height * width.key, panel_rows + 2 * height * width.key,
                    statistics.data<float>(), statistics.data<float>() + height};
  float* block_rows = blocks.data<float>();
  float* keys_transposed = block_rows + kAttentionBlock * widest;
  float* values_transposed = keys_transposed + kAttentionBlock * width.key;
  const ScoreTiles tiles{tile_scratch.data<float>(), tile_scratch.data<float>() + kAttentionBlock * kAttentionBlock};

  std::fill(dk, dk + all_keys * (width.key + width.value), 0.0f);
  for (int64_t index = 0; index < rows.num_panels(); ++index) {
    const Interval range = rows.panel(index);
    load_panel(op, rows, range, panel, d_sinks);
    for_each_block(rows.keys(range), rows.span.k_length, [&](Interval block) HWY_ATTR {
      load_keys(rows, op.v, s.value_dim(), block, block_rows);
      transpose(block_rows, block.size(), s.value_dim(), width.value, values_transposed);
      load_keys(rows, op.k, s.head_dim, block, block_rows);
      transpose(block_rows, block.size(), s.head_dim, width.key, keys_transposed);
      const KeyBlock keys{block_rows, keys_transposed, values_transposed, dk + block.begin * width.key,
                          dv + block.begin * width.value};
      for_each_block(range, range.end, [&](Interval part) HWY_ATTR {
        const Interval seen = rows.keys_from(block.begin, part);
        if (seen.empty()) return;
        attend_block_backward(rows, part, part.begin - range.begin, seen, panel, keys, tiles);
      });
    });
    for (int64_t row = range.begin; row < range.end; ++row) {
      store_row(op.dq, rows.token(row), rows.head(row), s.head_dim, static_cast<float>(s.scale),
                panel.dq + (row - range.begin) * width.key);
    }
  }
  for (int64_t j = 0; j < rows.span.k_length; ++j) {
    store_row(op.dk, rows.key_token(j), rows.kv_head, s.head_dim, 1, dk + j * width.key);
    store_row(op.dv, rows.key_token(j), rows.kv_head, s.value_dim(), 1, dv + j * width.value);
  }
}

}  // namespace nought::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nought::cpu {
HWY_EXPORT(attend_backward);

namespace {

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
  // One row of sums per sequence: no two tasks share a sum.
  const int64_t heads = op.d_sinks ? op.shape.num_heads : 0, sequences = op.shape.num_sequences();
  std::vector<float> sinks(static_cast<size_t>(sequences * heads));
#pragma omp parallel for schedule(dynamic, 1)
  for (int64_t task = 0; task < sequences * op.shape.num_kv_heads; ++task) {
    const int64_t sequence = task / op.shape.num_kv_heads;
    const AttentionRows rows{op.shape, op.shape.span(sequence), task % op.shape.num_kv_heads};
    HWY_DYNAMIC_DISPATCH(attend_backward)(op, rows, op.d_sinks ? sinks.data() + sequence * heads : nullptr);
  }
  if (op.d_sinks) write_sinks(op, sinks);
}

}  // namespace nought::cpu
#endif
