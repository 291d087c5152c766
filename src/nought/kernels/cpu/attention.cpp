// Attention with a streaming softmax (arXiv 2205.14135, 2307.08691): per panel of rows, one pass over the key blocks.
#include "nought/kernels/cpu/attention.h"

#include <algorithm>
#include <cmath>
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
#include "nought/kernels/cpu/attention_direct-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nought::cpu::HWY_NAMESPACE {

/// What kAttentionBlock rows have gathered so far; a row is a lane.
struct Gathered {
  float* out;      // [value_dim, kAttentionBlock]: sum of exp(score - largest) * value
  float* largest;  // [kAttentionBlock]: near the largest score of the row
  float* total;    // [kAttentionBlock]: sum of exp(score - largest)

  Gathered from(int64_t row) const { return {out + row, largest + row, total + row}; }
};

/// Exponentials of a vector of rows, two keys at a time, in place of the scores.
struct FloatWeights {
  static constexpr float kSlack = kFloatSlack;
  Tile tile;

  HWY_INLINE void store(int64_t key, FloatVector first, FloatVector second) const {
    hn::StoreU(first, F32(), tile.data + key * tile.stride);
    hn::StoreU(second, F32(), tile.data + (key + 1) * tile.stride);
  }
};

/// Raises `largest` to the largest score of a vector of rows where that is larger by more than `slack`, and rescales
/// what the rows have gathered.
template <class See>
HWY_INLINE void raise_largest(const Tile& scores, int64_t keys, const See& see, float factor, float slack,
                              int64_t value_dim, const Gathered& all) {
  const F32 d;
  const auto least = hn::Set(d, -std::numeric_limits<float>::infinity());
  FloatVector top[4] = {least, least, least, least};
  int64_t j = 0;
  for (; j + 4 <= keys; j += 4) {
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i)
      top[i] = hn::Max(top[i], see.only(hn::LoadU(d, scores.data + (j + i) * scores.stride), j + i, least));
  }
  for (; j < keys; ++j) top[0] = hn::Max(top[0], see.only(hn::LoadU(d, scores.data + j * scores.stride), j, least));
  const auto found = hn::Mul(hn::Max(hn::Max(top[0], top[1]), hn::Max(top[2], top[3])), hn::Set(d, factor));
  const auto before = hn::LoadU(d, all.largest);
  const auto is_larger = hn::Gt(found, hn::Add(before, hn::Set(d, slack)));
  if (hn::AllFalse(d, is_larger)) return;
  hn::StoreU(hn::IfThenElse(is_larger, found, before), d, all.largest);
  const auto fall = exp2(hn::Mul(hn::Sub(before, found), hn::Set(d, std::numbers::log2e_v<float>)));
  const auto rescale = hn::IfThenElse(is_larger, fall, hn::Set(d, 1.0f));
  hn::StoreU(hn::Mul(hn::LoadU(d, all.total), rescale), d, all.total);
  for (int64_t i = 0; i < value_dim; ++i) {
    float* at = all.out + i * kAttentionBlock;
    hn::StoreU(hn::Mul(hn::LoadU(d, at), rescale), d, at);
  }
}

/// Weights: exp(score - largest) where the row sees the key and 0 elsewhere, for a vector of rows.
template <class See, class Weights>
HWY_INLINE void stream_softmax(const Tile& scores, int64_t keys, const See& see, float factor, int64_t value_dim,
                               const Gathered& all, const Weights& weights) {
  const F32 d;
  constexpr float kLog2e = std::numbers::log2e_v<float>;
  raise_largest(scores, keys, see, factor, Weights::kSlack, value_dim, all);
  const auto scale = hn::Set(d, factor * kLog2e), start = hn::Mul(hn::LoadU(d, all.largest), hn::Set(d, kLog2e)),
             zero = hn::Zero(d);
  const auto weight = [&](int64_t j) HWY_ATTR {
    return see.only(exp2(hn::MulSub(hn::LoadU(d, scores.data + j * scores.stride), scale, start)), j, zero);
  };
  auto even = hn::LoadU(d, all.total), odd = zero;
  int64_t j = 0;
  for (; j + 2 <= keys; j += 2) {
    const auto first = weight(j), second = weight(j + 1);
    even = hn::Add(even, first);
    odd = hn::Add(odd, second);
    weights.store(j, first, second);
  }
  if (j < keys) {
    const auto last = weight(j);
    even = hn::Add(even, last);
    weights.store(j, last, zero);
  }
  hn::StoreU(hn::Add(even, odd), d, all.total);
}

/// Row j of a tile of [keys, columns] times scales[j].
inline void scale_tile(Tile tile, const float* scales, int64_t keys, int64_t columns) {
  const F32 d;
  for (int64_t j = 0; j < keys; ++j) {
    const auto scale = hn::Set(d, scales[j]);
    for (int64_t i = 0; i < columns; i += lanes()) {
      float* at = tile.data + j * tile.stride + i;
      hn::StoreU(hn::Mul(hn::LoadU(d, at), scale), d, at);
    }
  }
}

/// The products of a panel in fp32.
class FloatProducts {
 public:
  FloatProducts(const Attention& op, const AttentionRows& rows, Interval panel)
      : op_(op),
        rows_(rows),
        width_(padded(op.shape.head_dim)),
        queries_(bytes_for<float>(ceil_div(panel.size(), kAttentionBlock) * kAttentionBlock * width_)),
        keys_(bytes_for<float>(kAttentionBlock * (op.shape.head_dim + op.shape.value_dim()))),
        values_(keys_.data<float>() + kAttentionBlock * op.shape.head_dim) {
    const Scratch group(bytes_for<float>(lanes() * width_));
    for (int64_t row = panel.begin; row < panel.end; row += lanes()) {
      load_rows(rows, op.q, op.shape.head_dim, {row, std::min(row + lanes(), panel.end)}, lanes(), width_,
                group.data<float>());
      transpose(group.data<float>(), width_, lanes(), width_, queries(row - panel.begin), kAttentionBlock);
    }
  }

  void load_block(Interval block) {
    load_keys(rows_, op_.k, op_.shape.head_dim, block, keys_.data<float>());
    load_keys(rows_, op_.v, op_.shape.value_dim(), block, values_);
    if (op_.reads_codes())
      key_scales_ = scales_of(rows_, op_.k_scales, block), value_scales_ = scales_of(rows_, op_.v_scales, block);
  }

  /// scores: [keys, rows] of the rows from `row` of the panel on, with keys of the block.
  void score(int64_t row, int64_t rows, Interval keys, Tile scores) const {
    const int64_t head_dim = op_.shape.head_dim;
    unit_.multiply({keys_.data<float>() + keys.begin * head_dim, head_dim, 1}, {queries(row), kAttentionBlock},
                   head_dim, scores, keys.size(), rows, false);
    if (key_scales_) scale_tile(scores, key_scales_ + keys.begin, keys.size(), rows);
  }

  FloatWeights weights(Tile scores, int64_t column) const { return {{scores.data + column, scores.stride}}; }

  void add_values(Tile scores, int64_t rows, Interval keys, float* out) const {
    const int64_t value_dim = op_.shape.value_dim();
    if (value_scales_) scale_tile(scores, value_scales_ + keys.begin, keys.size(), rows);
    unit_.multiply({values_ + keys.begin * value_dim, 1, value_dim}, {scores.data, scores.stride}, keys.size(),
                   {out, kAttentionBlock}, value_dim, rows, true);
  }

 private:
  float* queries(int64_t row) const {
    return queries_.data<float>() + row / kAttentionBlock * kAttentionBlock * width_ + row % kAttentionBlock;
  }

  const FloatUnit unit_{};
  const Attention& op_;
  const AttentionRows& rows_;
  int64_t width_;
  Scratch queries_, keys_;
  float* values_;
  const float *key_scales_ = nullptr, *value_scales_ = nullptr;  // of the block's codes
};

#if HWY_TARGET == HWY_AVX3

/// Exponentials rounded to bf16, in pairs along the keys.
struct PairedWeights {
  static constexpr float kSlack = kPairedSlack;
  float* words;

  HWY_INLINE void store(int64_t key, FloatVector first, FloatVector second) const {
    hn::StoreU(paired(first, second), F32(), words + key / 2 * kAttentionBlock);
  }
};

/// The scores in bf16, by dot products.
class DotProducts {
 public:
  DotProducts(const Attention& op, const AttentionRows& rows, Interval panel)
      : op_(op),
        rows_(rows),
        part_(packed_tile(op.shape.head_dim, kAttentionBlock)),
        width_(round_up(op.shape.value_dim(), 16)),
        queries_(bytes_for<bf16_t>(ceil_div(panel.size(), kAttentionBlock) * part_)),
        blocks_(bytes_for<bf16_t>(kAttentionBlock * (op.shape.head_dim + width_ + kAttentionBlock))),
        keys_(blocks_.data<bf16_t>()),
        weights_(keys_ + kAttentionBlock * op.shape.head_dim),
        values_(weights_ + kAttentionBlock * kAttentionBlock) {
    const Scratch rounded(bytes_for<bf16_t>(kAttentionBlock * op.shape.head_dim));
    for (int64_t row = panel.begin; row < panel.end; row += kAttentionBlock) {
      const Interval part{row, std::min(row + kAttentionBlock, panel.end)};
      gather_rows(rows, op.q, op.shape.head_dim, part, rounded.data<bf16_t>());
      pack_columns(rounded.data<bf16_t>(), op.shape.head_dim, op.shape.head_dim, part.size(), kDotPanel,
                   queries_.data<bf16_t>() + (row - panel.begin) / kAttentionBlock * part_);
    }
  }

  void load_block(Interval block) const {
    const AttentionShape& s = op_.shape;
    copy_rows(head_of(rows_, op_.k, s.head_dim, block.begin), op_.k.token_stride, block.size(), s.head_dim, keys_);
    pack_rows(head_of(rows_, op_.v, s.value_dim(), block.begin), op_.v.token_stride, block.size(), s.value_dim(),
              width_, values_);
  }

  void score(int64_t row, int64_t rows, Interval keys, Tile scores) const {
    const int64_t pairs = op_.shape.head_dim / 2;
    const float* queries = words(queries_.data<bf16_t>() + row / kAttentionBlock * part_) + row % kAttentionBlock;
    unit_.multiply({words(keys_) + keys.begin * pairs, pairs, 1}, {queries, kAttentionBlock}, pairs, scores,
                   keys.size(), rows, false);
  }

  PairedWeights weights(Tile /*scores*/, int64_t column) const { return {words(weights_) + column}; }

  void add_values(Tile /*scores*/, int64_t rows, Interval keys, float* out) const {
    const int64_t pairs = ceil_div(keys.size(), 2);
    if (unit_.has_tiles()) finish_depth(pairs);
    unit_.multiply({words(values_) + keys.begin / 2 * width_, 1, width_}, {words(weights_), kAttentionBlock}, pairs,
                   {out, kAttentionBlock}, op_.shape.value_dim(), rows, true);
  }

 private:
  static float* words(bf16_t* data) { return reinterpret_cast<float*>(data); }
  /// Tiles read pairs behind the last.
  void finish_depth(int64_t pairs) const {
    std::fill(words(weights_) + pairs * kAttentionBlock,
              words(weights_) + round_up(pairs, kTileDepth / 2) * kAttentionBlock, 0.0f);
  }

  const DotUnit unit_{};
  const Attention& op_;
  const AttentionRows& rows_;
  int64_t part_, width_;
  Scratch queries_, blocks_;
  bf16_t *keys_, *weights_, *values_;
};

#endif

/// The softmax of one part with one block.
template <class Products>
void stream_tile(const Products& products, const AttentionRows& rows, const SeenTile& seen, int64_t block,
                 const ScoreScale& scale, Tile scores, const Gathered& all) {
  const int64_t value_dim = rows.shape.value_dim(), first = seen.keys.begin - block;
  if (scale.is_pass()) scale.pass(scores, seen.keys.size(), seen.part.size());
  Visibility visible;
  if (seen.masked) visible.load(rows, seen.part, seen.keys.begin);
  for (int64_t column = 0; column < seen.part.size(); column += lanes()) {
    const Tile vector{scores.data + column, scores.stride};
    const auto weights = products.weights(scores, column);
    if (seen.masked) {
      const SeeSome see{hn::LoadU(F32(), visible.begin + column), hn::LoadU(F32(), visible.end + column)};
      stream_softmax(vector, seen.keys.size(), see, scale.factor, value_dim, all.from(column), weights);
    } else {
      stream_softmax(vector, seen.keys.size(), SeeAll{}, scale.factor, value_dim, all.from(column), weights);
    }
  }
  products.add_values(scores, seen.part.size(), {first, first + seen.keys.size()}, all.out);
}

/// Writes the results of a panel.
void store_panel(const Attention& op, const AttentionRows& rows, Interval panel, const float* out, int64_t width,
                 const float* largest, const float* total) {
  const Scratch group(bytes_for<float>(lanes() * width));
  for (int64_t i = 0; i < panel.size(); i += lanes()) {
    const int64_t column = i % kAttentionBlock;
    const Interval part{panel.begin + i, std::min(panel.begin + i + lanes(), panel.end)};
    transpose(out + (i - column) * width + column, kAttentionBlock, width, lanes(), group.data<float>(), width);
    store_results(op, rows, part, group.data<float>(), width, largest + i, total + i);
  }
}

/// One panel of many rows.
template <class Products>
void attend_by(const Attention& op, const AttentionRows& rows, Interval panel) {
  const int64_t width = padded(op.shape.value_dim()), height = round_up(panel.size(), kAttentionBlock);
  const Scratch scratch(bytes_for<float>(height * (width + 2) + kAttentionBlock * kAttentionBlock));
  float *out = scratch.data<float>(), *largest = out + height * width, *total = largest + height;
  const Tile scores{total + height, kAttentionBlock};
  const ScoreScale scale(op.shape);
  Products products(op, rows, panel);
  std::fill_n(out, height * (width + 2), 0.0f);
  start_softmax(op, rows, panel, largest, total);
  for_each_block(rows.keys(panel), rows.span.k_length, [&](Interval block) HWY_ATTR {
    products.load_block(block);
    fetch_keys(rows, op.k, op.shape.head_dim, block.end);
    fetch_keys(rows, op.v, op.shape.value_dim(), block.end);
    for_each_part(rows, panel, block, [&](const SeenTile& seen) HWY_ATTR {
      const int64_t row = seen.part.begin - panel.begin, column = row % kAttentionBlock;
      products.score(row, seen.part.size(), {seen.keys.begin - block.begin, seen.keys.end - block.begin}, scores);
      const Gathered all{out + (row - column) * width + column, largest + row, total + row};
      stream_tile(products, rows, seen, block.begin, scale, scores, all);
    });
  });
  store_panel(op, rows, panel, out, width, largest, total);
}

/// One panel of rows: softmax(scale * q k^T) v.
void attend(const Attention& op, const AttentionRows& rows, Interval panel) {
  if (is_direct(op, panel.size())) return attend_directly(op, rows, panel);
  if (op.k.base.dtype() == DType::i8) {  // products of codes are for few rows at a time
    for (int64_t i = panel.begin; i < panel.end; i += kDirectRows)
      attend_directly(op, rows, {i, std::min(i + kDirectRows, panel.end)});
    return;
  }
#if HWY_TARGET == HWY_AVX3
  if (takes_dots(op)) return attend_by<DotProducts>(op, rows, panel);
#endif
  attend_by<FloatProducts>(op, rows, panel);
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
  if (op.q.base.dtype() == DType::f64) return reference::run(op);
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
