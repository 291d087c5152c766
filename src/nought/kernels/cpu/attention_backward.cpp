// The gradients of attention (arXiv 2307.08691, algorithm 2): the probabilities of each tile are computed again from
// the scores and the log of the sum of exponentials.
#include <cmath>
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

HWY_BEFORE_NAMESPACE();
namespace nought::cpu::HWY_NAMESPACE {

/// Padded head_dim of queries and keys, and of values.
struct Widths {
  explicit Widths(const AttentionShape& s) : key(padded(s.head_dim)), value(padded(s.value_dim())) {}
  int64_t key, value;
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

/// The factors of the products in fp32.
class FloatFactors {
 public:
  FloatFactors(const AttentionBackward& op, const AttentionRows& rows)
      : op_(op),
        rows_(rows),
        width_(op.shape),
        height_(std::min(round_up(rows.count(), 4), kAttentionPanel)),
        panel_(bytes_for<float>(height_ * (width_.key + width_.value))),
        blocks_(bytes_for<float>(kAttentionBlock * (std::max(width_.key, width_.value) + width_.key + width_.value))),
        queries_{panel_.data<float>(), width_.key},
        d_out_{queries_.data + height_ * width_.key, width_.value},
        keys_{blocks_.data<float>(), width_.key},
        keys_transposed_{keys_.data + kAttentionBlock * std::max(width_.key, width_.value), kAttentionBlock},
        values_transposed_{keys_transposed_.data + kAttentionBlock * width_.key, kAttentionBlock} {}

  /// What dk is to be multiplied by: the queries have their scale already.
  float key_scale() const { return 1; }

  void load_panel(Interval panel) const {
    const AttentionShape& s = op_.shape;
    const Heads d_out{op_.d_out, 0, s.num_heads * s.value_dim()};
    std::fill(queries_.data, queries_.data + height_ * width_.key, 0.0f);
    std::fill(d_out_.data, d_out_.data + height_ * width_.value, 0.0f);
    for (int64_t row = panel.begin; row < panel.end; ++row) {
      const int64_t i = row - panel.begin, token = rows_.token(row), head = rows_.head(row);
      load_row(d_out, token, head, s.value_dim(), 1, d_out_.data + i * width_.value);
      load_row(op_.q, token, head, s.head_dim, static_cast<float>(s.scale), queries_.data + i * width_.key);
    }
  }

  void load_block(Interval block) const {
    const AttentionShape& s = op_.shape;
    load_keys(rows_, op_.v, s.value_dim(), block, keys_.data);
    transpose(keys_.data, block.size(), s.value_dim(), width_.value, values_transposed_.data);
    load_keys(rows_, op_.k, s.head_dim, block, keys_.data);
    transpose(keys_.data, block.size(), s.head_dim, width_.key, keys_transposed_.data);
  }

  /// Scores, and the gradients of probabilities.
  void score(Interval part, int64_t first, Interval seen, const ScoreTiles& tiles) const {
    const AttentionShape& s = op_.shape;
    multiply({queries_.data + first * width_.key, width_.key, 1}, keys_transposed_, s.head_dim,
             {tiles.probabilities, kAttentionBlock}, part.size(), seen.size(), false);
    multiply({d_out_.data + first * width_.value, width_.value, 1}, values_transposed_, s.value_dim(),
             {tiles.d_scores, kAttentionBlock}, part.size(), seen.size(), false);
  }

  void add_gradients(Interval part, int64_t first, Interval seen, const ScoreTiles& tiles, float* dq, float* dk,
                     float* dv) const {
    const AttentionShape& s = op_.shape;
    const int64_t stride = kAttentionBlock;
    multiply({tiles.probabilities, 1, stride}, {d_out_.data + first * width_.value, width_.value}, part.size(),
             {dv, width_.value}, seen.size(), s.value_dim(), true);
    multiply({tiles.d_scores, 1, stride}, {queries_.data + first * width_.key, width_.key}, part.size(),
             {dk, width_.key}, seen.size(), s.head_dim, true);
    multiply({tiles.d_scores, stride, 1}, keys_, seen.size(), {dq, width_.key}, part.size(), s.head_dim, true);
  }

 private:
  const AttentionBackward& op_;
  const AttentionRows& rows_;
  Widths width_;
  int64_t height_;
  Scratch panel_, blocks_;
  Tile queries_, d_out_, keys_, keys_transposed_, values_transposed_;
};

/// The factors of the products in bf16, for dot products. Probabilities and the gradients of scores are rounded to it.
class DotFactors {
 public:
  DotFactors(const AttentionBackward& op, const AttentionRows& rows)
      : op_(op),
        rows_(rows),
        queries_(op.shape.head_dim, std::min(rows.count(), kAttentionPanel)),
        d_out_(op.shape.value_dim(), std::min(rows.count(), kAttentionPanel)),
        blocks_(bytes_for<bf16_t>(packed_tile(kAttentionBlock, op.shape.head_dim) +
                                  packed_tile(op.shape.head_dim, kAttentionBlock) +
                                  packed_tile(op.shape.value_dim(), kAttentionBlock))),
        tiles_(bytes_for<bf16_t>(2 * kAttentionBlock * kAttentionBlock)),
        keys_(blocks_.data<bf16_t>()),
        keys_transposed_(keys_ + packed_tile(kAttentionBlock, op.shape.head_dim)),
        values_transposed_(keys_transposed_ + packed_tile(op.shape.head_dim, kAttentionBlock)) {}

  float key_scale() const { return static_cast<float>(op_.shape.scale); }

  void load_panel(Interval panel) {
    const AttentionShape& s = op_.shape;
    queries_.load(rows_, op_.q, panel);
    d_out_.load(rows_, {op_.d_out, 0, s.num_heads * s.value_dim()}, panel);
  }

  void load_block(Interval block) {
    const AttentionShape& s = op_.shape;
    const bf16_t* keys = head_of(rows_, op_.k, s.head_dim, block.begin);
    const bf16_t* values = head_of(rows_, op_.v, s.value_dim(), block.begin);
    packed_keys_ = block.size();
    pack_rows(keys, op_.k.token_stride, block.size(), s.head_dim, kDotPanel, keys_);
    pack_columns(keys, op_.k.token_stride, s.head_dim, block.size(), kDotPanel, keys_transposed_);
    pack_columns(values, op_.v.token_stride, s.value_dim(), block.size(), kDotPanel, values_transposed_);
  }

  void score(Interval part, int64_t first, Interval seen, const ScoreTiles& tiles) const {
    const AttentionShape& s = op_.shape;
    const int64_t columns = padded(seen.size());
    multiply_dots(session_, queries_.left(first), keys_transposed_, s.head_dim, s.head_dim, tiles.probabilities,
                  kAttentionBlock, part.size(), columns, false);
    multiply_dots(session_, d_out_.left(first), values_transposed_, s.value_dim(), s.value_dim(), tiles.d_scores,
                  kAttentionBlock, part.size(), columns, false);
    for (int64_t i = 0; i < part.size(); ++i)
      scale_row(key_scale(), columns, tiles.probabilities + i * kAttentionBlock);
  }

  void add_gradients(Interval part, int64_t first, Interval seen, const ScoreTiles& tiles, float* dq, float* dk,
                     float* dv) const {
    const AttentionShape& s = op_.shape;
    const Widths width(s);
    const int64_t stride = kAttentionBlock, columns = padded(seen.size());
    bf16_t *rounded = tiles_.data<bf16_t>(), *transposed = rounded + stride * stride;
    const LeftFactor by_key{transposed, 2, 2 * stride};
    round_tile(tiles.probabilities, part.size(), columns, stride, rounded);
    pack_rows(rounded, stride, part.size(), columns, stride, transposed);
    multiply_dots(session_, by_key, d_out_.right(first), part.size(), part.size(), dv, width.value, seen.size(),
                  s.value_dim(), true);
    round_tile(tiles.d_scores, part.size(), columns, stride, rounded);
    pack_rows(rounded, stride, part.size(), columns, stride, transposed);
    multiply_dots(session_, by_key, queries_.right(first), part.size(), part.size(), dk, width.key, seen.size(),
                  s.head_dim, true);
    multiply_dots(session_, {rounded, stride, 2}, keys_, packed_keys_, seen.size(), dq, width.key, part.size(),
                  s.head_dim, true);
  }

 private:
  /// Rows of a panel: as they are for left factors, and packed in pairs for right ones, kAttentionBlock at a time.
  class Rows {
   public:
    Rows(int64_t columns, int64_t height)
        : columns_(columns),
          rows_(bytes_for<bf16_t>(height * columns)),
          packed_(bytes_for<bf16_t>(ceil_div(height, kAttentionBlock) * packed_tile(kAttentionBlock, columns))) {}
    void load(const AttentionRows& rows, const Heads& x, Interval panel) const {
      load_rounded(rows, x, columns_, panel, rows_.data<bf16_t>());
      for (int64_t first = 0; first < panel.size(); first += kAttentionBlock)
        pack_rows(rows_.data<bf16_t>() + first * columns_, columns_, std::min(kAttentionBlock, panel.size() - first),
                  columns_, kDotPanel, right(first));
    }
    LeftFactor left(int64_t first) const { return {rows_.data<bf16_t>() + first * columns_, columns_, 2}; }
    bf16_t* right(int64_t first) const {
      return packed_.data<bf16_t>() + first / kAttentionBlock * packed_tile(kAttentionBlock, columns_);
    }

   private:
    int64_t columns_;
    Scratch rows_, packed_;
  };

  const TileSession session_{tile_unit()};
  const AttentionBackward& op_;
  const AttentionRows& rows_;
  Rows queries_, d_out_;
  Scratch blocks_, tiles_;
  bf16_t *keys_, *keys_transposed_, *values_transposed_;
  int64_t packed_keys_ = 0;
};

/// What the rows have from the forward pass. d_sinks: what they give to the sink of each head, [num_heads], or null.
inline void load_statistics(const AttentionBackward& op, const AttentionRows& rows, Interval panel, float* lse,
                            float* delta, float* d_sinks) {
  const AttentionShape& s = op.shape;
  const Widths width(s);
  const Heads out{op.out, 0, s.num_heads * s.value_dim()}, d_out{op.d_out, 0, s.num_heads * s.value_dim()};
  const Scratch scratch(bytes_for<float>(2 * width.value));
  float *out_row = scratch.data<float>(), *d_out_row = out_row + width.value;
  std::fill(out_row, out_row + 2 * width.value, 0.0f);
  for (int64_t row = panel.begin; row < panel.end; ++row) {
    const int64_t i = row - panel.begin, token = rows.token(row), head = rows.head(row);
    load_row(out, token, head, s.value_dim(), 1, out_row);
    load_row(d_out, token, head, s.value_dim(), 1, d_out_row);
    delta[i] = dot_rows(out_row, d_out_row, width.value);
    lse[i] = op.lse.data<float>()[rows.lse(row)];
    if (d_sinks) d_sinks[head] -= std::exp(element(op.sinks, head) - lse[i]) * delta[i];
  }
}

/// All rows of one key/value head. dk and dv sum over its panels in order, dq over the key blocks in order.
template <class Factors>
void attend_backward_by(const AttentionBackward& op, const AttentionRows& rows, float* d_sinks) {
  const AttentionShape& s = op.shape;
  const Widths width(s);
  const int64_t height = std::min(round_up(rows.count(), 4), kAttentionPanel);
  const int64_t all_keys = round_up(rows.span.k_length, 4);
  const Scratch gradients(bytes_for<float>(all_keys * (width.key + width.value)));
  const Scratch dq_scratch(bytes_for<float>(height * width.key)), statistics(bytes_for<float>(2 * height));
  const Scratch tile_scratch(bytes_for<float>(2 * kAttentionBlock * kAttentionBlock));
  float *dk = gradients.data<float>(), *dv = dk + all_keys * width.key, *dq = dq_scratch.data<float>();
  float *lse = statistics.data<float>(), *delta = lse + height;
  const ScoreTiles tiles{tile_scratch.data<float>(), tile_scratch.data<float>() + kAttentionBlock * kAttentionBlock};
  const auto backward = s.softcap > 0 ? softmax_backward<true> : softmax_backward<false>;
  Factors factors(op, rows);

  std::fill(dk, dk + all_keys * (width.key + width.value), 0.0f);
  for (int64_t index = 0; index < rows.num_panels(); ++index) {
    const Interval range = rows.panel(index);
    std::fill(dq, dq + height * width.key, 0.0f);
    load_statistics(op, rows, range, lse, delta, d_sinks);
    factors.load_panel(range);
    for_each_block(rows.keys(range), rows.span.k_length, [&](Interval block) HWY_ATTR {
      factors.load_block(block);
      for_each_block(range, range.end, [&](Interval part) HWY_ATTR {
        const Interval seen = rows.keys_from(block.begin, part);
        if (seen.empty()) return;
        const int64_t first = part.begin - range.begin;
        factors.score(part, first, seen, tiles);
        for (int64_t i = 0; i < part.size(); ++i) {
          backward(rows.keys_in_block(part.begin + i, seen.begin), padded(seen.size()), lse[first + i],
                   delta[first + i], static_cast<float>(s.softcap), tiles.probabilities + i * kAttentionBlock,
                   tiles.d_scores + i * kAttentionBlock);
        }
        factors.add_gradients(part, first, seen, tiles, dq + first * width.key, dk + block.begin * width.key,
                              dv + block.begin * width.value);
      });
    });
    for (int64_t row = range.begin; row < range.end; ++row) {
      store_row(op.dq, rows.token(row), rows.head(row), s.head_dim, static_cast<float>(s.scale),
                dq + (row - range.begin) * width.key);
    }
  }
  for (int64_t j = 0; j < rows.span.k_length; ++j) {
    store_row(op.dk, rows.key_token(j), rows.kv_head, s.head_dim, factors.key_scale(), dk + j * width.key);
    store_row(op.dv, rows.key_token(j), rows.kv_head, s.value_dim(), 1, dv + j * width.value);
  }
}

void attend_backward(const AttentionBackward& op, const AttentionRows& rows, float* d_sinks) {
  const bool dots = takes_dots(op.shape, op.q.base.dtype()) && op.d_out.dtype() == DType::bf16;
  dots ? attend_backward_by<DotFactors>(op, rows, d_sinks) : attend_backward_by<FloatFactors>(op, rows, d_sinks);
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
