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
/// Sums of values that rows hold in registers.
constexpr int kDirectSums = HWY_TARGET == HWY_AVX3 ? 16 : 8;

/// What the rows have gathered so far.
struct DirectRows {
  const float* queries;  // [rows, width]: factors of words of a key
  float* keys;           // [words of a key, kAttentionBlock]
  float* scores;         // [rows, kAttentionBlock]: scores, then weights
  float* out;            // [rows, value_width]: sum of exp(score - largest) * value
  int64_t width, value_width;
  float largest[kDirectRows], total[kDirectRows];
  float query_scales[kDirectRows];  // of queries in codes
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

/// How a query's bits come about where the rows of a panel are multiplied by fp32 multiply-adds: FloatProducts. T: what
/// keys and values consist of.
template <class T>
struct DirectFloats {
  using Element = T;
  static constexpr bool kIsCode = sizeof(T) == 1;
  using Keys = std::conditional_t<std::is_same_v<T, bf16_t>, WidenedPairs,
                                  std::conditional_t<kIsCode, CodeWords<T>, WideWords<T>>>;
  using Values = std::conditional_t<kIsCode, WideCodes<T>, WideWords<T>>;
  static constexpr float kSlack = kFloatSlack;

  /// to: a row of factors for a query.
  static float load_query(const float* query, int64_t count, float* to) {
    if constexpr (std::is_same_v<T, int8_t>) return encode_head(query, count, reinterpret_cast<int16_t*>(to));
    std::copy_n(query, count, to);
    return 1;
  }
  static void round(float* /*weights*/) {}
};

#if HWY_TARGET == HWY_AVX3

/// How they come about by dot products: DotProducts.
struct DirectDots {
  using Element = bf16_t;
  static constexpr bool kIsCode = false;
  using Keys = DottedPairs;
  using Values = DottedPairs;
  static constexpr float kSlack = kPairedSlack;

  /// The query was bf16, so nothing is rounded.
  static float load_query(const float* query, int64_t count, float* to) {
    auto* elements = reinterpret_cast<bf16_t*>(to);
    for (int64_t i = 0; i < count; ++i) elements[i] = bf16_t(query[i]);
    return 1;
  }
  /// weights: kAttentionBlock numbers, to pairs of bf16 in their place.
  static void round(float* weights) {
    const F32 d;
    for (int64_t j = 0; j < kAttentionBlock; j += 2 * lanes()) {
      const __m512i both = converted(hn::LoadU(d, weights + j), hn::LoadU(d, weights + j + lanes()));
      _mm512_storeu_si512(weights + j / 2, both);
    }
  }
};

#endif

/// scores: [rows, keys] of a block of keys, whose words are transposed first.
template <class Keys>
void score_keys(const typename Keys::Element* keys, int64_t stride, int64_t count, int64_t head_dim, int64_t rows,
                const DirectRows& all) {
  for (int64_t j = 0; j < count; j += lanes())
    transpose_rows<Keys>(keys + j * stride, stride, std::min(lanes(), count - j), head_dim, lanes() * stride,
                         all.keys + j, kAttentionBlock);
  std::fill_n(all.scores, rows * kAttentionBlock, 0.0f);
  add_tiles<Keys>(all.queries, all.width, all.keys, kAttentionBlock, ceil_div(head_dim, Keys::kElements), all.scores,
                  rows, count);
}

/// Likewise of keys in int8_t, whose queries are int16_t: products and sums are whole numbers.
inline void score_codes(const int8_t* keys, int64_t stride, int64_t count, int64_t head_dim, int64_t rows,
                        const DirectRows& all) {
  const F32 d;
  std::fill_n(all.scores, rows * kAttentionBlock, 0.0f);
  for (int64_t j = 0; j < count; j += lanes())
    for (int64_t i = 0; i < rows; ++i) {
      const auto* query = reinterpret_cast<const int16_t*>(all.queries + i * all.width);
      const auto sums = dot_codes(query, keys + j * stride, stride, std::min(lanes(), count - j), head_dim);
      hn::StoreU(hn::Mul(hn::ConvertTo(d, sums), hn::Set(d, all.query_scales[i])), d,
                 all.scores + i * kAttentionBlock + j);
    }
}

/// out[i] += sum over j < count of weights[i] at j times values[j], for kRows rows and kVectors vectors.
template <class Values, int kRows, int kVectors, class Access>
HWY_INLINE void add_vectors(const float* weights, const typename Values::Element* values, int64_t stride, int64_t count,
                            float* out, int64_t width, Access access) {
  const F32 d;
  FloatVector sums[kRows][kVectors];
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sums[i][v] = hn::LoadU(d, out + i * width + v * lanes());
  }
  for (int64_t j = 0; j < count; j += Values::kElements, values += Values::kElements * stride, ++weights) {
    FloatVector words[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v)
      words[v] = Values::load_rows(values + v * lanes(), stride, j + Values::kElements <= count, access);
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sums[i][v] = Values::add(sums[i][v], weights + i * kAttentionBlock, words[v]);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sums[i][v], d, out + i * width + v * lanes());
  }
}

/// Adds all elements of the values.
template <class Values, int kRows>
void add_values(const float* weights, const typename Values::Element* values, int64_t stride, int64_t count,
                int64_t value_dim, float* out, int64_t width) {
  constexpr int kVectors = std::min(8, kDirectSums / kRows);
  int64_t at = 0;
  for (; at + kVectors * lanes() <= value_dim; at += kVectors * lanes())
    add_vectors<Values, kRows, kVectors>(weights, values + at, stride, count, out + at, width, Whole{});
  for (; at + lanes() <= value_dim; at += lanes())
    add_vectors<Values, kRows, 1>(weights, values + at, stride, count, out + at, width, Whole{});
  if (at < value_dim)
    add_vectors<Values, kRows, 1>(weights, values + at, stride, count, out + at, width,
                                  Partial{static_cast<size_t>(value_dim - at)});
}

/// The scores of a row where it sees the key, `otherwise` elsewhere.
HWY_INLINE FloatVector seen_only(Interval visible, int64_t j, FloatVector value, FloatVector otherwise) {
  const F32 d;
  const auto at = hn::Iota(d, static_cast<float>(j)), begin = hn::Set(d, static_cast<float>(visible.begin)),
             end = hn::Set(d, static_cast<float>(visible.end));
  return hn::IfThenElse(hn::And(hn::Ge(at, begin), hn::Lt(at, end)), value, otherwise);
}

/// raise_largest() of one row, whose scores lie along the lanes.
inline void raise_row(Interval visible, const float* scores, float factor, float slack, DirectRows& all, int64_t row) {
  const F32 d;
  const auto least = hn::Set(d, -std::numeric_limits<float>::infinity());
  auto top = least;
  for (int64_t j = 0; j < kAttentionBlock; j += lanes())
    top = hn::Max(top, seen_only(visible, j, hn::LoadU(d, scores + j), least));
  const float found = hn::GetLane(hn::MaxOfLanes(d, top)) * factor, before = all.largest[row];
  if (!(found > before + slack)) return;
  const auto fall =
      exp2(hn::Mul(hn::Sub(hn::Set(d, before), hn::Set(d, found)), hn::Set(d, std::numbers::log2e_v<float>)));
  all.largest[row] = found;
  all.total[row] *= hn::GetLane(fall);
  float* out = all.out + row * all.value_width;
  for (int64_t i = 0; i < all.value_width; i += lanes()) hn::StoreU(hn::Mul(hn::LoadU(d, out + i), fall), d, out + i);
}

/// stream_softmax() of one row: its scores become weights, and their sum grows by the same additions, of those at even
/// places and of those at odd ones.
inline void stream_row(Interval visible, float* scores, float factor, float slack, DirectRows& all, int64_t row) {
  const F32 d;
  constexpr float kLog2e = std::numbers::log2e_v<float>;
  if (visible.empty()) {
    std::fill_n(scores, kAttentionBlock, 0.0f);
    return;
  }
  raise_row(visible, scores, factor, slack, all, row);
  const auto scale = hn::Set(d, factor * kLog2e), start = hn::Mul(hn::Set(d, all.largest[row]), hn::Set(d, kLog2e));
  for (int64_t j = 0; j < kAttentionBlock; j += lanes()) {
    const auto weight = exp2(hn::MulSub(hn::LoadU(d, scores + j), scale, start));
    hn::StoreU(seen_only(visible, j, weight, hn::Zero(d)), d, scores + j);
  }
  float even = all.total[row], odd = 0;
  for (int64_t j = visible.begin / 2 * 2; j < visible.end; j += 2) even += scores[j], odd += scores[j + 1];
  all.total[row] = even + odd;
}

/// The first scores or weights of each row times the scales of the codes that they belong to.
inline void scale_rows(const float* scales, int64_t count, int64_t rows, float* scores) {
  const F32 d;
  HWY_ALIGN float all[kAttentionBlock] = {};
  std::copy_n(scales, count, all);
  for (int64_t i = 0; i < rows; ++i, scores += kAttentionBlock)
    for (int64_t j = 0; j < count; j += lanes())
      hn::StoreU(hn::Mul(hn::LoadU(d, scores + j), hn::Load(d, all + j)), d, scores + j);
}

/// One block of keys: first, count of them, from the first that a row of the panel sees on.
template <class Direct>
void gather_block(const Attention& op, const AttentionRows& rows, Interval panel, Interval keys,
                  const ScoreScale& scale, DirectRows& all) {
  const AttentionShape& s = op.shape;
  using T = typename Direct::Element;
  const auto at = [&](const Heads& x, int64_t dim) {
    return head_elements<T>(x.base) + x.at(rows.key_token(keys.begin), rows.kv_head, dim);
  };
  if constexpr (std::is_same_v<T, int8_t>) {
    score_codes(at(op.k, s.head_dim), op.k.token_stride, keys.size(), s.head_dim, panel.size(), all);
  } else {
    score_keys<typename Direct::Keys>(at(op.k, s.head_dim), op.k.token_stride, keys.size(), s.head_dim, panel.size(),
                                      all);
  }
  if (Direct::kIsCode) scale_rows(scales_of(rows, op.k_scales, keys), keys.size(), panel.size(), all.scores);
  if (scale.is_pass()) scale.pass({all.scores, kAttentionBlock}, panel.size(), keys.size());
  for (int64_t i = 0; i < panel.size(); ++i) {
    const Interval seen = intersect(visible_keys(s, rows.span, rows.query(panel.begin + i)), keys);
    float* scores = all.scores + i * kAttentionBlock;
    stream_row({seen.begin - keys.begin, seen.end - keys.begin}, scores, scale.factor, Direct::kSlack, all, i);
    Direct::round(scores);
  }
  if (Direct::kIsCode) scale_rows(scales_of(rows, op.v_scales, keys), keys.size(), panel.size(), all.scores);
  int64_t i = 0;
  const auto add = [&](auto count) HWY_ATTR {
    constexpr int kRows = decltype(count)::value;
    for (; i + kRows <= panel.size(); i += kRows)
      add_values<typename Direct::Values, kRows>(all.scores + i * kAttentionBlock, at(op.v, s.value_dim()),
                                                 op.v.token_stride, keys.size(), s.value_dim(),
                                                 all.out + i * all.value_width, all.value_width);
  };
  add(std::integral_constant<int, 4>());
  add(std::integral_constant<int, 2>());
  add(std::integral_constant<int, 1>());
}

/// One panel of at most kDirectRows rows. An element has the bits that it has in a panel of many rows.
template <class Direct>
void attend_directly_by(const Attention& op, const AttentionRows& rows, Interval panel) {
  const AttentionShape& s = op.shape;
  const int64_t width = padded(s.head_dim), value_width = padded(s.value_dim());
  const Scratch scratch(
      bytes_for<float>(panel.size() * (2 * width + value_width + kAttentionBlock) + width * kAttentionBlock));
  float *wide = scratch.data<float>(), *queries = wide + panel.size() * width, *keys = queries + panel.size() * width,
        *scores = keys + width * kAttentionBlock, *out = scores + panel.size() * kAttentionBlock;
  DirectRows all{queries, keys, scores, out, width, value_width, {}, {}, {}};
  load_rows(rows, op.q, s.head_dim, panel, panel.size(), width, wide);
  for (int64_t i = 0; i < panel.size(); ++i)
    all.query_scales[i] = Direct::load_query(wide + i * width, width, queries + i * width);
  std::fill_n(out, panel.size() * value_width, 0.0f);
  start_softmax(op, rows, panel, all.largest, all.total);
  const ScoreScale scale(s);
  for_each_block(rows.keys(panel), rows.span.k_length, [&](Interval block) HWY_ATTR {
    fetch_keys(rows, op.v, s.value_dim(), block.begin);
    gather_block<Direct>(op, rows, panel, rows.seen(panel, block), scale, all);
  });
  store_results(op, rows, panel, out, value_width, all.largest, all.total);
}

/// Whether so few rows are taken as they are: AMX multiplies them in tiles, in an order of its own.
inline bool is_direct(const Attention& op, int64_t rows) {
  return rows <= kDirectRows && !(takes_dots(op) && tile_unit() != TileUnit::none);
}

inline void attend_directly(const Attention& op, const AttentionRows& rows, Interval panel) {
#if HWY_TARGET == HWY_AVX3
  if (takes_dots(op)) return attend_directly_by<DirectDots>(op, rows, panel);
#endif
  visit_keys(op.k.base.dtype(), [&](auto tag) HWY_ATTR {
    attend_directly_by<DirectFloats<typename decltype(tag)::type>>(op, rows, panel);
  });
}

}  // namespace nought::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
