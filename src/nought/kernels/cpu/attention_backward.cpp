// The gradients of attention (arXiv 2307.08691, algorithm 2): the probabilities of each tile are computed again from
// the scores and the log of the sum of exponentials.
#include <limits>

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

/// A panel of rows in fp32, [rows, width] each.
struct Panel {
  float *queries, *d_out, *dq;  // the queries times the scale
  float *lse, *delta;           // [rows]; delta = sum of d_out * out, what a row's gradient loses to its softmax
};

/// A block of keys in fp32.
struct KeyBlock {
  float *keys, *keys_transposed, *values_transposed;
  float *dk, *dv;  // [block, width] of the sums over all rows
};

/// One tile of probabilities and of the gradients of scores.
struct ScoreTiles {
  float *probabilities, *d_scores;
};

/// probabilities = exp(score - lse) where visible, and d_scores = probabilities * (d_probability - delta), in place.
inline void softmax_backward(Interval visible, int64_t columns, float lse, float delta, float* scores,
                             float* d_probabilities) {
  const F32 d;
  for (int64_t j = 0; j < columns; j += lanes()) {
    const auto power = exp(d, hn::Sub(hn::Load(d, scores + j), hn::Set(d, lse)));
    const auto probability = hn::IfThenElseZero(columns_in(visible, j), power);
    hn::Store(probability, d, scores + j);
    const auto difference = hn::Sub(hn::Load(d, d_probabilities + j), hn::Set(d, delta));
    hn::Store(hn::Mul(probability, difference), d, d_probabilities + j);
  }
}

inline void load_panel(const AttentionBackward& op, const AttentionRows& rows, Interval panel, int64_t width,
                       const Panel& to) {
  const AttentionShape& s = op.shape;
  const int64_t height = round_up(panel.size(), 4);
  const Heads out{op.out, 0, s.num_heads * s.head_dim}, d_out{op.d_out, 0, s.num_heads * s.head_dim};
  for (float* rows_of : {to.queries, to.d_out, to.dq}) std::fill(rows_of, rows_of + height * width, 0.0f);
  for (int64_t row = panel.begin; row < panel.end; ++row) {
    const int64_t i = row - panel.begin, token = rows.token(row), head = rows.head(row);
    float* scratch = to.dq + i * width;
    load_row(out, token, head, s.head_dim, 1, scratch);
    load_row(d_out, token, head, s.head_dim, 1, to.d_out + i * width);
    to.delta[i] = dot_rows(scratch, to.d_out + i * width, width);
    std::fill(scratch, scratch + width, 0.0f);
    load_row(op.q, token, head, s.head_dim, static_cast<float>(s.scale), to.queries + i * width);
    to.lse[i] = op.lse.data<float>()[rows.lse(row)];
  }
}

/// Adds what the rows `part` and the keys `seen` of one block give each other. `first` is the part's place in the
/// panel.
inline void attend_block_backward(const AttentionRows& rows, Interval part, int64_t first, Interval seen, int64_t width,
                                  const Panel& panel, const KeyBlock& keys, const ScoreTiles& tiles) {
  const int64_t head_dim = rows.shape.head_dim, stride = kAttentionBlock;
  const Tile queries{panel.queries + first * width, width}, d_out{panel.d_out + first * width, width};
  multiply({queries.data, width, 1}, {keys.keys_transposed, stride}, head_dim, {tiles.probabilities, stride},
           part.size(), seen.size(), false);
  multiply({d_out.data, width, 1}, {keys.values_transposed, stride}, head_dim, {tiles.d_scores, stride}, part.size(),
           seen.size(), false);
  for (int64_t i = 0; i < part.size(); ++i) {
    softmax_backward(rows.keys_in_block(part.begin + i, seen.begin), padded(seen.size()), panel.lse[first + i],
                     panel.delta[first + i], tiles.probabilities + i * stride, tiles.d_scores + i * stride);
  }
  multiply({tiles.probabilities, 1, stride}, d_out, part.size(), {keys.dv, width}, seen.size(), head_dim, true);
  multiply({tiles.d_scores, 1, stride}, queries, part.size(), {keys.dk, width}, seen.size(), head_dim, true);
  multiply({tiles.d_scores, stride, 1}, {keys.keys, width}, seen.size(), {panel.dq + first * width, width}, part.size(),
           head_dim, true);
}

/// All rows of one key/value head. dk and dv sum over its panels in order, dq over the key blocks in order.
void attend_backward(const AttentionBackward& op, const AttentionRows& rows) {
  const AttentionShape& s = op.shape;
  const int64_t width = padded(s.head_dim), block_size = kAttentionBlock * width;
  const int64_t height = std::min(round_up(rows.count(), 4), kAttentionPanel);
  const int64_t all_keys = round_up(s.k_length, 4) * width;
  const auto floats = [](int64_t count) { return count * static_cast<int64_t>(sizeof(float)); };
  const Scratch gradients(floats(2 * all_keys)), rows_scratch(floats(3 * height * width)),
      statistics(floats(2 * height));
  const Scratch blocks(floats(3 * block_size)), tile_scratch(floats(2 * kAttentionBlock * kAttentionBlock));
  float* dk = gradients.data<float>();
  float* dv = dk + all_keys;
  float* panel_rows = rows_scratch.data<float>();
  const Panel panel{panel_rows, panel_rows + height * width, panel_rows + 2 * height * width, statistics.data<float>(),
                    statistics.data<float>() + height};
  float* block_rows = blocks.data<float>();
  float* keys_transposed = block_rows + block_size;
  float* values_transposed = keys_transposed + block_size;
  const ScoreTiles tiles{tile_scratch.data<float>(), tile_scratch.data<float>() + kAttentionBlock * kAttentionBlock};

  std::fill(dk, dk + 2 * all_keys, 0.0f);
  for (int64_t index = 0; index < rows.num_panels(); ++index) {
    const Interval range = rows.panel(index);
    load_panel(op, rows, range, width, panel);
    for_each_block(rows.keys(range), s.k_length, [&](Interval block) HWY_ATTR {
      load_keys(rows, op.v, block, width, block_rows);
      transpose(block_rows, block.size(), s.head_dim, width, values_transposed);
      load_keys(rows, op.k, block, width, block_rows);
      transpose(block_rows, block.size(), s.head_dim, width, keys_transposed);
      const KeyBlock keys{block_rows, keys_transposed, values_transposed, dk + block.begin * width,
                          dv + block.begin * width};
      for_each_block(range, range.end, [&](Interval part) HWY_ATTR {
        const Interval seen = rows.keys_from(block.begin, part);
        if (seen.empty()) return;
        attend_block_backward(rows, part, part.begin - range.begin, seen, width, panel, keys, tiles);
      });
    });
    for (int64_t row = range.begin; row < range.end; ++row) {
      store_row(op.dq, rows.token(row), rows.head(row), s.head_dim, static_cast<float>(s.scale),
                panel.dq + (row - range.begin) * width);
    }
  }
  for (int64_t j = 0; j < s.k_length; ++j) {
    store_row(op.dk, rows.key_token(j), rows.kv_head, s.head_dim, 1, dk + j * width);
    store_row(op.dv, rows.key_token(j), rows.kv_head, s.head_dim, 1, dv + j * width);
  }
}

}  // namespace nought::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nought::cpu {
HWY_EXPORT(attend_backward);

void run(const AttentionBackward& op) {
  check(op);
  if (op.out.dtype() == DType::f64) return reference::run(op);
#pragma omp parallel for schedule(dynamic, 1)
  for (int64_t task = 0; task < op.shape.batch * op.shape.num_kv_heads; ++task) {
    const AttentionRows rows{op.shape, task / op.shape.num_kv_heads, task % op.shape.num_kv_heads};
    HWY_DYNAMIC_DISPATCH(attend_backward)(op, rows);
  }
}

}  // namespace nought::cpu
#endif
