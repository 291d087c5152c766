// Attention of few rows, as when one token is generated: keys and values are read once, where they lie. This file is
// compiled once per target.
#if defined(NOUGHT_KERNELS_CPU_ATTENTION_DIRECT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NOUGHT_KERNELS_CPU_ATTENTION_DIRECT_INL_H_
#undef NOUGHT_KERNELS_CPU_ATTENTION_DIRECT_INL_H_
#else
#define NOUGHT_KERNELS_CPU_ATTENTION_DIRECT_INL_H_
#endif

#include <cmath>

#include "nought/kernels/cpu/attention-inl.h"
#include "nought/kernels/cpu/scratch.h"

HWY_BEFORE_NAMESPACE();
namespace nought::cpu::HWY_NAMESPACE {

/// Rows up to which to convert keys costs more than it saves.
constexpr int64_t kDirectRows = 8;
/// Keys of one step of the streaming softmax.
constexpr int64_t kDirectKeys = 256;
/// Sums that rows hold in registers.
constexpr int kDirectSums = HWY_TARGET == HWY_AVX3 ? 16 : 8;

/// What the rows have gathered so far.
struct DirectRows {
  const float* queries;  // [rows, width]
  float* out;            // [rows, value_width]: sum of exp(score - largest) * value
  float* scores;         // [rows, kDirectKeys]
  int64_t width, value_width;
  float largest[kDirectRows], total[kDirectRows];
};

/// What rows have gathered before their first key: nothing, or their heads' sinks.
inline void start_softmax(const Attention& op, const AttentionRows& rows, Interval panel, float* largest,
                          float* total) {
  for (int64_t row = panel.begin; row < panel.end; ++row) {
    largest[row - panel.begin] = op.sinks ? element(op.sinks, rows.head(row)) : -std::numeric_limits<float>::infinity();
    total[row - panel.begin] = op.sinks ? 1.0f : 0.0f;
  }
}

/// Writes what rows have gathered, at most kDirectRows or a vector of them. The total of a row is 0 if it saw nothing:
/// then its result is 0, its lse -infinity.
inline void store_results(const Attention& op, const AttentionRows& rows, Interval part, const float* out,
                          int64_t width, const float* largest, const float* total) {
  const int64_t value_dim = op.shape.value_dim();
  float factors[std::max<size_t>(kDirectRows, hn::MaxLanes(F32()))];
  auto* lse = op.lse.data<float>();
  for (int64_t i = 0; i < part.size(); ++i) {
    factors[i] = total[i] == 0 ? 0 : 1 / total[i];
    lse[rows.lse(part.begin + i)] = largest[i] + std::log(total[i]);
  }
  store_rows(rows, {op.out, 0, op.shape.num_heads * value_dim}, value_dim, part, factors, out, width);
}

/// The sums of the lanes of four vectors.
HWY_INLINE void store_sums(const FloatVector* sums, float* to) {
  const F32 d;
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  FloatVector row[4] = {sums[0], sums[1], sums[2], sums[3]};
  transpose_blocks(row);
  const FloatVector blocks = hn::Add(hn::Add(row[0], row[1]), hn::Add(row[2], row[3]));
  const hn::Half<F32> half;
  const auto halves = hn::Add(hn::LowerHalf(half, blocks), hn::UpperHalf(half, blocks));
#if HWY_TARGET == HWY_AVX3
  const hn::Half<hn::Half<F32>> quarter;
  hn::StoreU(hn::Add(hn::LowerHalf(quarter, halves), hn::UpperHalf(quarter, halves)), quarter, to);
#else
  hn::StoreU(halves, half, to);
#endif
#else
  for (int i = 0; i < 4; ++i) to[i] = hn::GetLane(hn::SumOfLanes(d, sums[i]));
#endif
}

/// scores[i * kDirectKeys + j] = queries[i] . keys[j] for kRows rows and four keys.
template <int kRows, class T>
HWY_INLINE void score_keys(const float* queries, int64_t width, const T* keys, int64_t stride, int64_t head_dim,
                           float* scores) {
  const F32 d;
  FloatVector sums[kRows][4];
#pragma GCC unroll 4
  for (auto& row : sums)
#pragma GCC unroll 4
    for (auto& sum : row) sum = hn::Zero(d);
  sweep(d, 0, head_dim, [&](int64_t at, auto access) HWY_ATTR {
    FloatVector part[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) part[j] = access.load(d, keys + j * stride + at);
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
      const auto query = hn::LoadU(d, queries + i * width + at);
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) sums[i][j] = hn::MulAdd(query, part[j], sums[i][j]);
    }
  });
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i) store_sums(sums[i], scores + i * kDirectKeys);
}

/// The score of one key.
template <class T>
HWY_INLINE float score_key(const float* query, const T* key, int64_t head_dim) {
  const F32 d;
  auto sum = hn::Zero(d);
  sweep(d, 0, head_dim, [&](int64_t at, auto access) HWY_ATTR {
    sum = hn::MulAdd(hn::LoadU(d, query + at), access.load(d, key + at), sum);
  });
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

/// out[i] += sum over j < count of weights[i * kDirectKeys + j] * values[j] for kRows rows and kVectors vectors.
template <int kRows, int kVectors, class T, class Access>
HWY_INLINE void add_vectors(const float* weights, const T* values, int64_t stride, int64_t count, float* out,
                            int64_t width, Access access) {
  const F32 d;
  FloatVector sums[kRows][kVectors];
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sums[i][v] = hn::LoadU(d, out + i * width + v * lanes());
  }
  for (int64_t j = 0; j < count; ++j, values += stride) {
    FloatVector part[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) part[v] = access.load(d, values + v * lanes());
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
      const auto weight = hn::Set(d, weights[i * kDirectKeys + j]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[i][v] = hn::MulAdd(weight, part[v], sums[i][v]);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sums[i][v], d, out + i * width + v * lanes());
  }
}

/// Adds all elements of the values.
template <int kRows, class T>
void add_values(const float* weights, const T* values, int64_t stride, int64_t count, int64_t value_dim, float* out,
                int64_t width) {
  constexpr int kVectors = std::min(8, kDirectSums / kRows);
  int64_t at = 0;
  for (; at + kVectors * lanes() <= value_dim; at += kVectors * lanes())
    add_vectors<kRows, kVectors>(weights, values + at, stride, count, out + at, width, Whole{});
  for (; at + lanes() <= value_dim; at += lanes())
    add_vectors<kRows, 1>(weights, values + at, stride, count, out + at, width, Whole{});
  if (at < value_dim)
    add_vectors<kRows, 1>(weights, values + at, stride, count, out + at, width,
                          Partial{static_cast<size_t>(value_dim - at)});
}

/// Turns a row of scores into exp(score - largest) where visible and 0 elsewhere, and rescales what was gathered
/// before to the new largest score.
inline void stream_row(Interval visible, int64_t count, float* scores, float scale, DirectRows& all, int64_t row) {
  const F32 d;
  constexpr float kLog2e = std::numbers::log2e_v<float>;
  if (visible.empty()) {
    std::fill_n(scores, count, 0.0f);
    return;
  }
  const auto minus_infinity = hn::Set(d, -std::numeric_limits<float>::infinity());
  const auto score = [&](int64_t j) HWY_ATTR {
    const auto at = hn::Iota(d, static_cast<float>(j)), begin = hn::Set(d, static_cast<float>(visible.begin)),
               end = hn::Set(d, static_cast<float>(visible.end));
    return hn::IfThenElse(hn::And(hn::Ge(at, begin), hn::Lt(at, end)), hn::LoadU(d, scores + j), minus_infinity);
  };
  auto top = minus_infinity;
  for (int64_t j = 0; j < count; j += lanes()) top = hn::Max(top, score(j));
  const float before = all.largest[row], largest = std::max(before, scale * hn::GetLane(hn::MaxOfLanes(d, top)));
  const auto start = hn::Set(d, largest * kLog2e), factor = hn::Set(d, scale * kLog2e);
  auto sum = hn::Zero(d);
  for (int64_t j = 0; j < count; j += lanes()) {
    const auto weight = exp2(hn::MulSub(score(j), factor, start));
    hn::StoreU(weight, d, scores + j);
    sum = hn::Add(sum, weight);
  }
  const float rescale = before == largest ? 1.0f : std::exp(before - largest);
  float* out = all.out + row * all.value_width;
  if (rescale != 1.0f)
    for (int64_t i = 0; i < all.value_width; i += lanes())
      hn::StoreU(hn::Mul(hn::LoadU(d, out + i), hn::Set(d, rescale)), d, out + i);
  all.largest[row] = largest;
  all.total[row] = all.total[row] * rescale + hn::GetLane(hn::SumOfLanes(d, sum));
}

/// Calls four(i), two(i) or one(i) with the first of as many rows.
template <class Four, class Two, class One>
HWY_INLINE void for_rows(int64_t rows, const Four& four, const Two& two, const One& one) {
  int64_t i = 0;
  for (; i + 4 <= rows; i += 4) four(i);
  for (; i + 2 <= rows; i += 2) two(i);
  if (i < rows) one(i);
}

/// `T` is the type of keys and values.
template <class T>
void gather_directly(const Attention& op, const AttentionRows& rows, Interval panel, DirectRows& all) {
  const AttentionShape& s = op.shape;
  const ScoreScale scale(s);
  const T* keys = op.k.base.data<T>() + op.k.at(rows.key_token(0), rows.kv_head, s.head_dim);
  const T* values = op.v.base.data<T>() + op.v.at(rows.key_token(0), rows.kv_head, s.value_dim());
  const int64_t k_stride = op.k.token_stride, v_stride = op.v.token_stride, width = all.value_width;
  const Interval range = rows.keys(panel);
  for (int64_t block = range.begin / kDirectKeys * kDirectKeys; block < range.end; block += kDirectKeys) {
    const Interval part = intersect(range, {block, block + kDirectKeys});
    const int64_t first = part.begin, count = part.size();
    int64_t j = 0;
    for (; j + 4 <= count; j += 4) {
      const auto by = [&](auto kRows) HWY_ATTR {
        return [&](int64_t i) HWY_ATTR {
          score_keys<decltype(kRows)::value>(all.queries + i * all.width, all.width, keys + (first + j) * k_stride,
                                             k_stride, s.head_dim, all.scores + i * kDirectKeys + j);
        };
      };
      const auto two = by(std::integral_constant<int, 2>());
      const auto four = [&](int64_t i) HWY_ATTR {
        if constexpr (kDirectSums >= 16) return by(std::integral_constant<int, 4>())(i);
        two(i), two(i + 2);
      };
      for_rows(panel.size(), four, two, by(std::integral_constant<int, 1>()));
    }
    for (; j < count; ++j)
      for (int64_t i = 0; i < panel.size(); ++i)
        all.scores[i * kDirectKeys + j] =
            score_key(all.queries + i * all.width, keys + (first + j) * k_stride, s.head_dim);
    if (scale.is_pass()) scale.pass({all.scores, kDirectKeys}, panel.size(), count);
    for (int64_t i = 0; i < panel.size(); ++i) {
      const Interval seen = intersect(visible_keys(s, rows.span, rows.query(panel.begin + i)), part);
      stream_row({seen.begin - first, seen.end - first}, count, all.scores + i * kDirectKeys, scale.factor, all, i);
    }
    const auto by = [&](auto kRows) HWY_ATTR {
      return [&](int64_t i) HWY_ATTR {
        add_values<decltype(kRows)::value>(all.scores + i * kDirectKeys, values + first * v_stride, v_stride, count,
                                           s.value_dim(), all.out + i * width, width);
      };
    };
    for_rows(panel.size(), by(std::integral_constant<int, 4>()), by(std::integral_constant<int, 2>()),
             by(std::integral_constant<int, 1>()));
  }
}

/// One panel of at most kDirectRows rows.
inline void attend_directly(const Attention& op, const AttentionRows& rows, Interval panel) {
  const AttentionShape& s = op.shape;
  const int64_t width = padded(s.head_dim), value_width = padded(s.value_dim());
  const Scratch scratch(bytes_for<float>(panel.size() * (width + value_width + kDirectKeys)));
  float *queries = scratch.data<float>(), *out = queries + panel.size() * width;
  DirectRows all{queries, out, out + panel.size() * value_width, width, value_width, {}, {}};
  load_rows(rows, op.q, s.head_dim, panel, panel.size(), width, queries);
  std::fill_n(out, panel.size() * value_width, 0.0f);
  start_softmax(op, rows, panel, all.largest, all.total);
  visit(op.k.base.dtype(),
        [&](auto tag) HWY_ATTR { gather_directly<typename decltype(tag)::type>(op, rows, panel, all); });
  store_results(op, rows, panel, out, value_width, all.largest, all.total);
}

}  // namespace nought::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
