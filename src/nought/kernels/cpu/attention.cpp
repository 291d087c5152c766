// Attention with a streaming softmax (arXiv 2205.14135, 2307.08691): per panel of rows, one pass over the key blocks.
#include "nought/kernels/cpu/attention.h"

#include <cmath>
#include <limits>
#include <vector>

#include "nought/kernels/check.h"
#include "nought/kernels/cpu/cpu.h"
#include "nought/kernels/cpu/dot_tiles.h"
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
  const float* queries;  // [rows, width], times the scale; not there for DotProducts, which read op.q
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

/// The products of a panel in fp32.
class FloatProducts {
 public:
  FloatProducts(const Attention& op, const AttentionRows& rows, Interval /*panel*/, const Gathered& all)
      : op_(op),
        rows_(rows),
        all_(all),
        keys_(bytes_for<float>(kAttentionBlock * all.width)),
        keys_transposed_(bytes_for<float>(op.shape.head_dim * kAttentionBlock)),
        values_(bytes_for<float>(kAttentionBlock * all.v_width)) {}

  void load_block(Interval block) const {
    const AttentionShape& s = op_.shape;
    load_keys(rows_, op_.k, s.head_dim, block, keys_.data<float>());
    transpose(keys_.data<float>(), block.size(), s.head_dim, all_.width, keys_transposed_.data<float>());
    load_keys(rows_, op_.v, s.value_dim(), block, values_.data<float>());
  }

  /// tile: [rows, kAttentionBlock] = the scores of the rows from `first` on with the block's first keys.
  void score(int64_t first, int64_t rows, int64_t keys, float* tile) const {
    multiply({all_.queries + first * all_.width, all_.width, 1}, {keys_transposed_.data<float>(), kAttentionBlock},
             op_.shape.head_dim, {tile, kAttentionBlock}, rows, keys, false);
  }

  void add_values(int64_t first, int64_t rows, int64_t keys, const float* tile) const {
    multiply({tile, kAttentionBlock, 1}, {values_.data<float>(), all_.v_width}, keys,
             {all_.out + first * all_.v_width, all_.v_width}, rows, op_.shape.value_dim(), true);
  }

 private:
  const Attention& op_;
  const AttentionRows& rows_;
  const Gathered& all_;
  Scratch keys_, keys_transposed_, values_;
};

/// The same in bf16, by dot products.
class DotProducts {
 public:
  DotProducts(const Attention& op, const AttentionRows& rows, Interval panel, const Gathered& all)
      : op_(op),
        rows_(rows),
        all_(all),
        queries_(bytes_for<bf16_t>(panel.size() * op.shape.head_dim)),
        keys_(bytes_for<bf16_t>(packed_tile(op.shape.head_dim, kAttentionBlock))),
        values_(bytes_for<bf16_t>(packed_tile(kAttentionBlock, op.shape.value_dim()))),
        weights_(bytes_for<bf16_t>(kAttentionBlock * kAttentionBlock)) {
    load_rounded(rows, op.q, op.shape.head_dim, panel, queries_.data<bf16_t>());
  }

  void load_block(Interval block) {
    const AttentionShape& s = op_.shape;
    packed_keys_ = block.size();
    pack_columns(head_of(rows_, op_.k, s.head_dim, block.begin), op_.k.token_stride, s.head_dim, block.size(),
                 kDotPanel, keys_.data<bf16_t>());
    pack_rows(head_of(rows_, op_.v, s.value_dim(), block.begin), op_.v.token_stride, block.size(), s.value_dim(),
              kDotPanel, values_.data<bf16_t>());
  }

  void score(int64_t first, int64_t rows, int64_t keys, float* tile) const {
    const int64_t head_dim = op_.shape.head_dim, columns = padded(keys);
    multiply_dots(session_, {queries_.data<bf16_t>() + first * head_dim, head_dim, 2}, keys_.data<bf16_t>(), head_dim,
                  head_dim, tile, kAttentionBlock, rows, columns, false);
    for (int64_t i = 0; i < rows; ++i)
      scale_row(static_cast<float>(op_.shape.scale), columns, tile + i * kAttentionBlock);
  }

  void add_values(int64_t first, int64_t rows, int64_t keys, const float* tile) const {
    round_tile(tile, rows, padded(keys), kAttentionBlock, weights_.data<bf16_t>());
    multiply_dots(session_, {weights_.data<bf16_t>(), kAttentionBlock, 2}, values_.data<bf16_t>(), packed_keys_, keys,
                  all_.out + first * all_.v_width, all_.v_width, rows, op_.shape.value_dim(), true);
  }

 private:
  const TileSession session_{tile_unit()};
  const Attention& op_;
  const AttentionRows& rows_;
  const Gathered& all_;
  Scratch queries_, keys_, values_, weights_;
  int64_t packed_keys_ = 0;
};

/// Many rows: key blocks are converted and transposed, or packed, once for all of them, and multiplied as tiles.
template <class Products>
void gather_tiles(const Attention& op, const AttentionRows& rows, Interval panel, const Gathered& all) {
  Products products(op, rows, panel, all);
  const Scratch scores(bytes_for<float>(kAttentionBlock * kAttentionBlock));
  const auto softcap = static_cast<float>(op.shape.softcap);
  float* tile = scores.data<float>();
  for_each_block(rows.keys(panel), rows.span.k_length, [&](Interval block) HWY_ATTR {
    products.load_block(block);
    for_each_block(panel, panel.end, [&](Interval part) HWY_ATTR {
      const Interval seen = rows.keys_from(block.begin, part);
      if (seen.empty()) return;
      const int64_t first = part.begin - panel.begin, columns = padded(seen.size());
      products.score(first, part.size(), seen.size(), tile);
      for (int64_t i = 0; i < part.size(); ++i) {
        if (softcap > 0) cap_scores(softcap, columns, tile + i * kAttentionBlock);
        stream_softmax(rows.keys_in_block(part.begin + i, block.begin), columns, tile + i * kAttentionBlock, all,
                       first + i);
      }
      products.add_values(first, part.size(), seen.size(), tile);
    });
  });
}

/// scores[i * kAttentionBlock] = queries[i] . key for kRows rows.
template <int kRows, class T>
HWY_INLINE void score_key(const float* queries, int64_t width, const T* key, int64_t head_dim, float* scores) {
  const F32 d;
  FloatVector sums[kRows];
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i) sums[i] = hn::Zero(d);
  sweep(d, 0, head_dim, [&](int64_t at, auto access) HWY_ATTR {
    const auto part = access.load(d, key + at);
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) sums[i] = hn::MulAdd(hn::Load(d, queries + i * width + at), part, sums[i]);
  });
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i) scores[i * kAttentionBlock] = hn::GetLane(hn::SumOfLanes(d, sums[i]));
}

/// out[i] += sum over j < count of weights[i * kAttentionBlock + j] * values[j] for kRows rows.
template <int kRows, class T>
HWY_INLINE void add_values(const float* weights, const T* values, int64_t stride, int64_t count, int64_t value_dim,
                           float* out, int64_t width) {
  const F32 d;
  sweep(d, 0, value_dim, [&](int64_t at, auto access) HWY_ATTR {
    FloatVector sums[kRows];
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) sums[i] = hn::Load(d, out + i * width + at);
    for (int64_t j = 0; j < count; ++j) {
      const auto part = access.load(d, values + j * stride + at);
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i) sums[i] = hn::MulAdd(hn::Set(d, weights[i * kAttentionBlock + j]), part, sums[i]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) hn::Store(sums[i], d, out + i * width + at);
  });
}

/// Rows up to which to convert and transpose keys costs more than it saves.
constexpr int64_t kDirectRows = 8;

/// Few rows, as when one token is generated: keys and values are read where they lie. `T` is their type.
template <class T>
void gather_directly(const Attention& op, const AttentionRows& rows, Interval panel, const Gathered& all) {
  const AttentionShape& s = op.shape;
  HWY_ALIGN float tile[kDirectRows * kAttentionBlock];
  const T* keys = op.k.base.data<T>() + op.k.at(rows.key_token(0), rows.kv_head, s.head_dim);
  const T* values = op.v.base.data<T>() + op.v.at(rows.key_token(0), rows.kv_head, s.value_dim());
  const int64_t k_stride = op.k.token_stride, v_stride = op.v.token_stride;
  const Interval range = rows.keys(panel);
  // Rows by fours, the rest one by one.
  const auto for_rows = [&](auto&& four, auto&& one) HWY_ATTR {
    int64_t i = 0;
    for (; i + 4 <= panel.size(); i += 4) four(i);
    for (; i < panel.size(); ++i) one(i);
  };
  for_each_block(range, rows.span.k_length, [&](Interval block) HWY_ATTR {
    const Interval seen = intersect(range, block);
    for (int64_t j = seen.begin; j < seen.end; ++j) {
      const T* key = keys + j * k_stride;
      float* scores = tile + j - block.begin;
      for_rows(
          [&](int64_t i) HWY_ATTR {
            score_key<4>(all.queries + i * all.width, all.width, key, s.head_dim, scores + i * kAttentionBlock);
          },
          [&](int64_t i) HWY_ATTR {
            score_key<1>(all.queries + i * all.width, all.width, key, s.head_dim, scores + i * kAttentionBlock);
          });
    }
    const int64_t columns = padded(seen.end - block.begin);
    for (int64_t i = 0; i < panel.size(); ++i) {
      float* scores = tile + i * kAttentionBlock;
      if (s.softcap > 0) cap_scores(static_cast<float>(s.softcap), columns, scores);
      stream_softmax(rows.keys_in_block(panel.begin + i, block.begin), columns, scores, all, i);
    }
    const float* weights = tile + seen.begin - block.begin;
    const T* value = values + seen.begin * v_stride;
    for_rows(
        [&](int64_t i) HWY_ATTR {
          add_values<4>(weights + i * kAttentionBlock, value, v_stride, seen.size(), s.value_dim(),
                        all.out + i * all.v_width, all.v_width);
        },
        [&](int64_t i) HWY_ATTR {
          add_values<1>(weights + i * kAttentionBlock, value, v_stride, seen.size(), s.value_dim(),
                        all.out + i * all.v_width, all.v_width);
        });
  });
}

/// One panel of rows: softmax(scale * q k^T) v.
void attend(const Attention& op, const AttentionRows& rows, Interval panel) {
  const AttentionShape& s = op.shape;
  const int64_t width = padded(s.head_dim), v_width = padded(s.value_dim()), height = round_up(panel.size(), 4);
  const bool dots = panel.size() > kDirectRows && takes_dots(s, op.q.base.dtype());
  const Scratch queries(bytes_for<float>(dots ? 0 : height * width)), out(bytes_for<float>(height * v_width));
  const Scratch statistics(bytes_for<float>(2 * height));
  const Gathered all{queries.data<float>(),
                     out.data<float>(),
                     statistics.data<float>(),
                     statistics.data<float>() + height,
                     width,
                     v_width};
  std::fill(all.out, all.out + height * v_width, 0.0f);
  start_softmax(op, rows, panel, all);
  if (!dots) {
    std::fill(queries.data<float>(), queries.data<float>() + height * width, 0.0f);
    for (int64_t row = panel.begin; row < panel.end; ++row)
      load_row(op.q, rows.token(row), rows.head(row), s.head_dim, static_cast<float>(s.scale),
               queries.data<float>() + (row - panel.begin) * width);
  }

  if (dots) {
    gather_tiles<DotProducts>(op, rows, panel, all);
  } else if (panel.size() > kDirectRows) {
    gather_tiles<FloatProducts>(op, rows, panel, all);
  } else {
    visit(op.k.base.dtype(),
          [&](auto tag) HWY_ATTR { gather_directly<typename decltype(tag)::type>(op, rows, panel, all); });
  }

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

namespace {

struct PanelTask {
  int64_t sequence, panel;
};

/// All panels of all sequences. Late panels see the most keys under a causal mask: they start first, so that no thread
/// ends alone.
std::vector<PanelTask> panels_of(const AttentionShape& shape) {
  std::vector<PanelTask> tasks;
  for (int64_t sequence = 0; sequence < shape.num_sequences(); ++sequence) {
    const int64_t panels = AttentionRows{shape, shape.span(sequence)}.num_panels();
    for (int64_t panel = 0; panel < panels; ++panel) tasks.push_back({sequence, panel});
  }
  std::stable_sort(tasks.begin(), tasks.end(),
                   [](const PanelTask& a, const PanelTask& b) { return a.panel > b.panel; });
  return tasks;
}

}  // namespace

void run(const Attention& op) {
  check(op);
  if (op.out.dtype() == DType::f64) return reference::run(op);
  const std::vector<PanelTask> tasks = panels_of(op.shape);
  const auto heads = op.shape.num_kv_heads, count = static_cast<int64_t>(tasks.size()) * heads;
#pragma omp parallel for schedule(dynamic, 1)
  for (int64_t i = 0; i < count; ++i) {
    const PanelTask& task = tasks[static_cast<size_t>(i / heads)];
    const AttentionRows rows{op.shape, op.shape.span(task.sequence), i % heads};
    HWY_DYNAMIC_DISPATCH(attend)(op, rows, rows.panel(task.panel));
  }
}

}  // namespace nought::cpu
#endif
