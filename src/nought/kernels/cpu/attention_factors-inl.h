// The gradients of scores, and the factors of the products that attention's backward pass takes: in fp32, or in bf16
// for dot products. This file is compiled once per target.
#if defined(NOUGHT_KERNELS_CPU_ATTENTION_FACTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NOUGHT_KERNELS_CPU_ATTENTION_FACTORS_INL_H_
#undef NOUGHT_KERNELS_CPU_ATTENTION_FACTORS_INL_H_
#else
#define NOUGHT_KERNELS_CPU_ATTENTION_FACTORS_INL_H_
#endif

#include "nought/kernels/cpu/attention-inl.h"
#include "nought/kernels/cpu/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace nought::cpu::HWY_NAMESPACE {

/// The scores of a part and the gradients of its probabilities, [keys, rows] each.
struct ScoreTiles {
  Tile scores, d_probabilities;

  ScoreTiles from(int64_t column) const {
    return {{scores.data + column, scores.stride}, {d_probabilities.data + column, d_probabilities.stride}};
  }
};

/// What turns the tiles of a vector of rows into probabilities and gradients of scores.
struct RowStatistics {
  FloatVector lse, delta;  // lse in units of ln 2
  float scale;             // makes a score an exponent of 2
  float cap;               // the softcap of scores; 0: none
};

/// A probability and the gradient of its score.
struct Gradient {
  FloatVector probability, d_score;
};

/// probability = exp(score - lse) where the row sees the key, and d_score = probability * (d_probability - delta) *
/// slope. The slope of a capped score is 1 - (score / cap)^2, otherwise 1.
template <bool kCapped, class See>
HWY_INLINE Gradient gradient(const ScoreTiles& tiles, int64_t key, const See& see, const RowStatistics& row) {
  const F32 d;
  const auto score = hn::LoadU(d, tiles.scores.data + key * tiles.scores.stride);
  const auto d_probability = hn::LoadU(d, tiles.d_probabilities.data + key * tiles.d_probabilities.stride);
  const auto power = exp2(hn::MulSub(score, hn::Set(d, row.scale), row.lse));
  const auto probability = see.only(power, key, hn::Zero(d));
  auto d_score = hn::Mul(probability, hn::Sub(d_probability, row.delta));
  if constexpr (kCapped) {
    const auto ratio = hn::Mul(score, hn::Set(d, 1 / row.cap));
    d_score = hn::Mul(d_score, hn::NegMulAdd(ratio, ratio, hn::Set(d, 1.0f)));
  }
  return {probability, d_score};
}

/// The factors of the products in fp32.
class FloatFactors {
 public:
  FloatFactors(const AttentionBackward& op, const AttentionRows& rows)
      : op_(op),
        rows_(rows),
        queries_(op.shape.head_dim, rows.panel(0).size()),
        d_out_(op.shape.value_dim(), rows.panel(0).size()),
        keys_(bytes_for<float>(kAttentionBlock * (op.shape.head_dim + op.shape.value_dim()))),
        values_(keys_.data<float>() + kAttentionBlock * op.shape.head_dim) {}

  void load_panel(Interval panel) const {
    queries_.load(rows_, op_.q, panel);
    d_out_.load(rows_, {op_.d_out, 0, op_.shape.num_heads * op_.shape.value_dim()}, panel);
  }

  void load_block(Interval block) const {
    load_keys(rows_, op_.k, op_.shape.head_dim, block, keys_.data<float>());
    load_keys(rows_, op_.v, op_.shape.value_dim(), block, values_);
  }

  /// Scores, and the gradients of probabilities, of the rows from `row` of the panel on with keys of the block.
  void score(int64_t row, int64_t rows, Interval keys, const ScoreTiles& tiles) const {
    const int64_t head_dim = op_.shape.head_dim, value_dim = op_.shape.value_dim();
    unit_.multiply({keys_.data<float>() + keys.begin * head_dim, head_dim, 1}, queries_.by_columns(row), head_dim,
                   tiles.scores, keys.size(), rows, false);
    unit_.multiply({values_ + keys.begin * value_dim, value_dim, 1}, d_out_.by_columns(row), value_dim,
                   tiles.d_probabilities, keys.size(), rows, false);
  }

  /// Probabilities and gradients of scores, in place.
  template <bool kCapped, class See>
  void differentiate(const ScoreTiles& tiles, int64_t column, int64_t keys, const See& see,
                     const RowStatistics& row) const {
    const ScoreTiles at = tiles.from(column);
    for (int64_t j = 0; j < keys; ++j) {
      const Gradient found = gradient<kCapped>(at, j, see, row);
      hn::StoreU(found.probability, F32(), at.scores.data + j * at.scores.stride);
      hn::StoreU(found.d_score, F32(), at.d_probabilities.data + j * at.d_probabilities.stride);
    }
  }

  void add_gradients(const ScoreTiles& tiles, int64_t row, int64_t rows, Interval keys, float* dq, Tile dk,
                     Tile dv) const {
    const int64_t head_dim = op_.shape.head_dim, value_dim = op_.shape.value_dim(), stride = kAttentionBlock;
    unit_.multiply({tiles.scores.data, stride, 1}, d_out_.by_rows(row), rows, dv, keys.size(), value_dim, true);
    unit_.multiply({tiles.d_probabilities.data, stride, 1}, queries_.by_rows(row), rows, dk, keys.size(), head_dim,
                   true);
    unit_.multiply({keys_.data<float>() + keys.begin * head_dim, 1, head_dim}, {tiles.d_probabilities.data, stride},
                   keys.size(), {dq, stride}, head_dim, rows, true);
  }

 private:
  /// Rows of a panel as right factors: as they are and, kAttentionBlock at a time, transposed.
  class Rows {
   public:
    Rows(int64_t columns, int64_t height)
        : columns_(columns),
          width_(padded(columns)),
          rows_(bytes_for<float>(2 * round_up(height, kAttentionBlock) * width_)),
          transposed_(rows_.data<float>() + round_up(height, kAttentionBlock) * width_) {}
    void load(const AttentionRows& rows, const Heads& x, Interval panel) const {
      load_rows(rows, x, columns_, panel, round_up(panel.size(), lanes()), width_, rows_.data<float>());
      for (int64_t first = 0; first < panel.size(); first += kAttentionBlock)
        transpose(rows_.data<float>() + first * width_, width_,
                  round_up(std::min(kAttentionBlock, panel.size() - first), lanes()), width_,
                  transposed_ + first * width_, kAttentionBlock);
    }
    Right by_rows(int64_t row) const { return {rows_.data<float>() + row * width_, width_}; }
    Right by_columns(int64_t row) const {
      const int64_t column = row % kAttentionBlock;
      return {transposed_ + (row - column) * width_ + column, kAttentionBlock};
    }

   private:
    int64_t columns_, width_;
    Scratch rows_;
    float* transposed_;
  };

  const FloatUnit unit_{};
  const AttentionBackward& op_;
  const AttentionRows& rows_;
  Rows queries_, d_out_;
  Scratch keys_;
  float* values_;
};

#if HWY_TARGET == HWY_AVX3

/// The factors of the products in bf16, for dot products. Probabilities and the gradients of scores are rounded to it.
class DotFactors {
 public:
  DotFactors(const AttentionBackward& op, const AttentionRows& rows)
      : op_(op),
        rows_(rows),
        width_(round_up(op.shape.head_dim, 16)),
        queries_(op.shape.head_dim, rows.panel(0).size()),
        d_out_(op.shape.value_dim(), rows.panel(0).size()),
        blocks_(bytes_for<bf16_t>(kAttentionBlock * (op.shape.head_dim + op.shape.value_dim() + width_) + 3 * kTile)),
        probabilities_(blocks_.data<bf16_t>()),
        d_scores_(probabilities_ + kTile),
        d_score_pairs_(d_scores_ + kTile),
        key_pairs_(d_score_pairs_ + kTile),
        keys_(key_pairs_ + kAttentionBlock * width_),
        values_(keys_ + kAttentionBlock * op.shape.head_dim) {}

  void load_panel(Interval panel) {
    queries_.load(rows_, op_.q, panel);
    d_out_.load(rows_, {op_.d_out, 0, op_.shape.num_heads * op_.shape.value_dim()}, panel);
  }

  void load_block(Interval block) const {
    const AttentionShape& s = op_.shape;
    const bf16_t* keys = head_of(rows_, op_.k, s.head_dim, block.begin);
    const bf16_t* values = head_of(rows_, op_.v, s.value_dim(), block.begin);
    copy_rows(keys, op_.k.token_stride, block.size(), s.head_dim, keys_);
    copy_rows(values, op_.v.token_stride, block.size(), s.value_dim(), values_);
    pack_rows(keys, op_.k.token_stride, block.size(), s.head_dim, width_, key_pairs_);
  }

  void score(int64_t row, int64_t rows, Interval keys, const ScoreTiles& tiles) const {
    const int64_t key_pairs = op_.shape.head_dim / 2, value_pairs = op_.shape.value_dim() / 2;
    unit_.multiply({words(keys_) + keys.begin * key_pairs, key_pairs, 1}, queries_.by_columns(row), key_pairs,
                   tiles.scores, keys.size(), rows, false);
    unit_.multiply({words(values_) + keys.begin * value_pairs, value_pairs, 1}, d_out_.by_columns(row), value_pairs,
                   tiles.d_probabilities, keys.size(), rows, false);
  }

  /// Probabilities by rows, and gradients of scores by rows and in pairs along the keys. Two vectors of rows at a time.
  template <bool kCapped, class See>
  void differentiate(const ScoreTiles& tiles, int64_t column, int64_t keys, const See& see,
                     const RowStatistics& row) const {
    const ScoreTiles at = tiles.from(column);
    const Gradient none{hn::Zero(F32()), hn::Zero(F32())};
    for (int64_t j = 0; j < keys; j += 2) {
      const Gradient first = gradient<kCapped>(at, j, see, row);
      const Gradient second = j + 1 < keys ? gradient<kCapped>(at, j + 1, see, row) : none;
      store_two(first.probability, second.probability, probabilities_ + j * kAttentionBlock + column);
      store_two(first.d_score, second.d_score, d_scores_ + j * kAttentionBlock + column);
      hn::StoreU(paired(first.d_score, second.d_score), F32(),
                 words(d_score_pairs_) + j / 2 * kAttentionBlock + column);
    }
  }

  void add_gradients(const ScoreTiles& /*tiles*/, int64_t row, int64_t rows, Interval keys, float* dq, Tile dk,
                     Tile dv) const {
    const AttentionShape& s = op_.shape;
    const int64_t stride = kAttentionBlock / 2, row_pairs = ceil_div(rows, 2), key_pairs = ceil_div(keys.size(), 2);
    if (unit_.has_tiles()) finish_depth(key_pairs);
    unit_.multiply({words(probabilities_), stride, 1}, d_out_.by_rows(row), row_pairs, dv, keys.size(), s.value_dim(),
                   true);
    unit_.multiply({words(d_scores_), stride, 1}, queries_.by_rows(row), row_pairs, dk, keys.size(), s.head_dim, true);
    unit_.multiply({words(key_pairs_) + keys.begin / 2 * width_, 1, width_}, {words(d_score_pairs_), kAttentionBlock},
                   key_pairs, {dq, kAttentionBlock}, s.head_dim, rows, true);
  }

 private:
  static constexpr int64_t kTile = kAttentionBlock * kAttentionBlock;

  static float* words(bf16_t* data) { return reinterpret_cast<float*>(data); }
  /// Two rows of a tile.
  static HWY_INLINE void store_two(FloatVector first, FloatVector second, bf16_t* to) {
    const __m512i halves = converted(first, second);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm512_castsi512_si256(halves));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + kAttentionBlock), _mm512_extracti64x4_epi64(halves, 1));
  }
  /// AMX reads pairs behind the last.
  void finish_depth(int64_t pairs) const {
    std::fill(words(d_score_pairs_) + pairs * kAttentionBlock,
              words(d_score_pairs_) + round_up(pairs, kTileDepth / 2) * kAttentionBlock, 0.0f);
  }

  /// Rows of a panel as right factors, kAttentionBlock at a time: in pairs along their columns, and along the rows.
  class Rows {
   public:
    Rows(int64_t columns, int64_t height)
        : columns_(columns),
          by_columns_(packed_tile(columns, kAttentionBlock)),
          by_rows_(packed_tile(kAttentionBlock, columns)),
          pairs_(bytes_for<bf16_t>(ceil_div(height, kAttentionBlock) * (by_columns_ + by_rows_))) {}
    void load(const AttentionRows& rows, const Heads& x, Interval panel) {
      height_ = panel.size();
      const Scratch copy(bytes_for<bf16_t>(kAttentionBlock * columns_));
      bf16_t *from = copy.data<bf16_t>(), *to = pairs_.data<bf16_t>();
      for (int64_t first = 0; first < panel.size(); first += kAttentionBlock, to += by_columns_ + by_rows_) {
        const Interval part{panel.begin + first, std::min(panel.begin + first + kAttentionBlock, panel.end)};
        gather_rows(rows, x, columns_, part, from);
        pack_columns(from, columns_, columns_, part.size(), kDotPanel, to);
        pack_rows(from, columns_, part.size(), columns_, kDotPanel, to + by_columns_);
      }
    }
    Right by_columns(int64_t row) const { return {part_of(row) + row % kAttentionBlock, kAttentionBlock}; }
    Right by_rows(int64_t row) const {
      const int64_t column = row % kAttentionBlock, rows = std::min(kAttentionBlock, height_ - (row - column));
      return {part_of(row) + (by_columns_ + column * kDotPanel) / 2, kDotPanel, packed_panel(rows, kDotPanel) / 2};
    }

   private:
    float* part_of(int64_t row) const {
      return words(pairs_.data<bf16_t>() + row / kAttentionBlock * (by_columns_ + by_rows_));
    }

    int64_t columns_, by_columns_, by_rows_, height_ = 0;
    Scratch pairs_;
  };

  const DotUnit unit_{};
  const AttentionBackward& op_;
  const AttentionRows& rows_;
  int64_t width_;
  Rows queries_, d_out_;
  Scratch blocks_;
  bf16_t *probabilities_, *d_scores_, *d_score_pairs_, *key_pairs_, *keys_, *values_;
};

#endif

}  // namespace nought::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
