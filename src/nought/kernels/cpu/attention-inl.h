// What forward and backward attention share: rows widened to fp32 and transposed, exponentials, masks. This file is
// compiled once per target.
//
// Rows of queries lie along the lanes of vectors: the tile of scores is [keys, rows], so a row's statistics are a lane,
// and keys and values are left factors, which need no transposition.
#if defined(NOUGHT_KERNELS_CPU_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NOUGHT_KERNELS_CPU_ATTENTION_INL_H_
#undef NOUGHT_KERNELS_CPU_ATTENTION_INL_H_
#else
#define NOUGHT_KERNELS_CPU_ATTENTION_INL_H_
#endif

#include <limits>
#include <numbers>

#include <hwy/cache_control.h>

#include "nought/kernels/cpu/attention.h"
#include "nought/kernels/cpu/attention_products-inl.h"
#include "nought/kernels/cpu/head_codes-inl.h"
#include "nought/kernels/cpu/math-inl.h"
#include "nought/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nought::cpu::HWY_NAMESPACE {

/// Elements of a row that is padded with zeros to whole vectors, and to the blocks of transpose().
inline int64_t padded(int64_t n) { return round_up(n, std::max<int64_t>(4, lanes())); }

// --- rows ---

/// to[0, count) = from.
template <class T>
HWY_INLINE void load_row(const T* from, int64_t count, float* to) {
  const F32 d;
  sweep(d, 0, count, [=](int64_t i, auto access) HWY_ATTR { access.store(d, access.load(d, from + i), to + i); });
}

/// to[0, count) [+]= factor * from.
template <class T>
HWY_INLINE void store_row(const float* from, int64_t count, float factor, T* to, bool accumulate = false) {
  const F32 d;
  const auto scale = hn::Set(d, factor);
  if (accumulate)
    return sweep(d, 0, count, [=](int64_t i, auto access) HWY_ATTR {
      access.store(d, hn::MulAdd(scale, access.load(d, from + i), access.load(d, to + i)), to + i);
    });
  sweep(d, 0, count,
        [=](int64_t i, auto access) HWY_ATTR { access.store(d, hn::Mul(scale, access.load(d, from + i)), to + i); });
}

/// visit() of what keys and values consist of: codes, too.
template <class F>
HWY_INLINE void visit_keys(DType dtype, const F& f) {
  if (dtype == DType::i8) return f(TypeTag<int8_t>{});
  if (dtype == DType::u8) return f(TypeTag<e4m3_t>{});
  visit(dtype, f);
}

/// One block of keys or values as fp32 rows of head_dim elements; codes without their scales.
inline void load_keys(const AttentionRows& rows, const Heads& x, int64_t head_dim, Interval keys, float* to) {
  visit_keys(x.base.dtype(), [&](auto tag) HWY_ATTR {
    using T = typename decltype(tag)::type;
    const T* from = head_elements<T>(x.base) + x.at(rows.key_token(keys.begin), rows.kv_head, head_dim);
    for (int64_t j = 0; j < keys.size(); ++j) {
      if constexpr (sizeof(T) == 1) {
        load_codes(from + j * x.token_stride, head_dim, to + j * head_dim);
      } else {
        load_row(from + j * x.token_stride, head_dim, to + j * head_dim);
      }
    }
  });
}

/// The scales of a block's codes, from the first of its keys on.
inline const float* scales_of(const AttentionRows& rows, const Tensor& scales, Interval keys) {
  return scales.data<float>() + rows.kv_head * scales.dim(1) + rows.key_token(keys.begin);
}

/// Fetches the block of keys or values that begins at `key` while the one before is multiplied: rows are far apart, and
/// the hardware does not foresee them.
inline void fetch_keys(const AttentionRows& rows, const Heads& x, int64_t head_dim, int64_t key) {
  constexpr int64_t kLine = 64;
  const int64_t size = size_of(x.base.dtype()), end = std::min(key + kAttentionBlock, rows.span.k_length);
  for (; key < end; ++key) {
    const auto* from = x.base.raw() + size * x.at(rows.key_token(key), rows.kv_head, head_dim);
    for (int64_t at = 0; at < size * head_dim; at += kLine) hwy::Prefetch(from + at);
  }
}

/// A key/value head of the tokens [+]= factor * from.
inline void store_keys(const Heads& x, Interval tokens, int64_t kv_head, int64_t head_dim, float factor, Tile from,
                       bool accumulate) {
  visit(x.base.dtype(), [&](auto tag) HWY_ATTR {
    auto* to = x.base.data<typename decltype(tag)::type>();
    for (int64_t j = 0; j < tokens.size(); ++j)
      store_row(from.data + j * from.stride, head_dim, factor, to + x.at(tokens.begin + j, kv_head, head_dim),
                accumulate);
  });
}

/// to: [rows, width] = the heads' elements in fp32, with zeros up to `height` rows.
inline void load_rows(const AttentionRows& rows, const Heads& x, int64_t head_dim, Interval part, int64_t height,
                      int64_t width, float* to) {
  if (width > head_dim || height > part.size()) std::fill_n(to, height * width, 0.0f);
  visit(x.base.dtype(), [&](auto tag) HWY_ATTR {
    const auto* base = x.base.data<typename decltype(tag)::type>();
    for (int64_t i = 0; i < part.size(); ++i)
      load_row(base + x.at(rows.token(part.begin + i), rows.head(part.begin + i), head_dim), head_dim, to + i * width);
  });
}

/// The heads' elements of row i [+]= factors[i] * from: [rows, width].
inline void store_rows(const AttentionRows& rows, const Heads& x, int64_t head_dim, Interval part, const float* factors,
                       const float* from, int64_t width, bool accumulate = false) {
  visit(x.base.dtype(), [&](auto tag) HWY_ATTR {
    auto* base = x.base.data<typename decltype(tag)::type>();
    for (int64_t i = 0; i < part.size(); ++i)
      store_row(from + i * width, head_dim, factors[i],
                base + x.at(rows.token(part.begin + i), rows.head(part.begin + i), head_dim), accumulate);
  });
}

/// to: [rows, columns] = from, `stride` elements from row to row. It spares short rows the call of a function.
inline void copy_rows(const bf16_t* from, int64_t stride, int64_t rows, int64_t columns, bf16_t* to) {
  const hn::ScalableTag<uint16_t> d;
  const auto step = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < rows; ++i, from += stride, to += columns) {
    int64_t at = 0;
    for (; at + step <= columns; at += step)
      hn::StoreU(hn::LoadU(d, reinterpret_cast<const uint16_t*>(from + at)), d, reinterpret_cast<uint16_t*>(to + at));
    if (at < columns) std::copy_n(from + at, columns - at, to + at);
  }
}

/// Where the key/value head of a key lies in a bf16 tensor.
inline const bf16_t* head_of(const AttentionRows& rows, const Heads& x, int64_t head_dim, int64_t key) {
  return x.base.data<bf16_t>() + x.at(rows.key_token(key), rows.kv_head, head_dim);
}

/// to: [rows, head_dim] = the heads' elements, bf16 as they are.
inline void gather_rows(const AttentionRows& rows, const Heads& x, int64_t head_dim, Interval part, bf16_t* to) {
  const bf16_t* base = x.base.data<bf16_t>();
  for (int64_t row = part.begin; row < part.end; ++row, to += head_dim)
    copy_rows(base + x.at(rows.token(row), rows.head(row), head_dim), 0, 1, head_dim, to);
}

// --- transposition ---

/// to: [columns, rows] = the transpose of from: [rows, columns]; both counts are multiples of lanes().
inline void transpose(const float* from, int64_t from_stride, int64_t rows, int64_t columns, float* to,
                      int64_t to_stride) {
  for (int64_t i = 0; i < rows; i += lanes())
    for (int64_t j = 0; j < columns; j += lanes())
      transpose(from + i * from_stride + j, from_stride, to + j * to_stride + i, to_stride);
}

// --- functions of scores ---

/// 2^t for t < 127: 0 below -126, NaN for NaN, exactly 1 for 0; otherwise with a relative error of 2e-7.
///
/// t = n + r, n a whole number; 1 + r * q is the minimax polynomial for 2^r. AVX-512 takes r in [0, 1), and 2^n times
/// it, in one instruction each. Elsewhere |r| <= 1/2, and n lands in the last bits of `shifted`, biased as an exponent
/// is.
HWY_INLINE FloatVector exp2(FloatVector t) {
  const F32 d;
#if HWY_TARGET == HWY_AVX3
  constexpr int kBelow = 1;
  const FloatVector r{_mm512_reduce_ps(t.raw, kBelow)};
  auto q = hn::Set(d, 0.001867131982f);
  for (const float c : {0.009017026249f, 0.05579991604f, 0.2401644493f, 0.6931513119f, 1.0f})
    q = hn::MulAdd(q, r, hn::Set(d, c));
  const __mmask16 counts = _mm512_cmp_ps_mask(t.raw, _mm512_set1_ps(-126), _CMP_NLT_UQ);
  return FloatVector{_mm512_maskz_scalef_ps(counts, q.raw, t.raw)};
#else
  const hn::RebindToUnsigned<F32> bits;
  constexpr float kBias = 12582912.0f + 127.0f;  // 1.5 * 2^23: the unit of its last place is 1
  const auto bias = hn::Set(d, kBias), shifted = hn::Add(t, bias), r = hn::Sub(t, hn::Sub(shifted, bias));
  auto q = hn::Set(d, 0.001326472782f);
  for (const float c : {0.009671513264f, 0.05550733747f, 0.2402224208f, 0.6931469776f, 1.0f})
    q = hn::MulAdd(q, r, hn::Set(d, c));
  const auto scale = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(bits, shifted)));
  return hn::IfThenZeroElse(hn::Lt(shifted, hn::Set(d, kBias - 126)), hn::Mul(q, scale));
#endif
}

/// A score that is so little above the largest one before does not become the largest: exponentials may be as large as
/// e^5. Where they are rounded to bf16, the largest is 1, which rounding does not change.
inline constexpr float kFloatSlack = 5, kPairedSlack = 0;

/// How a tile's scores become those of the softmax: score = factor * tile, after a pass over the tile if it is needed.
struct ScoreScale {
  float before, cap, factor;

  explicit ScoreScale(const AttentionShape& s)
      : before(static_cast<float>(s.scale)), cap(static_cast<float>(s.softcap)), factor(is_pass() ? 1.0f : before) {}
  /// True if scores need a pass of their own: where they are capped, or where a scale of 0 or less reverses their
  /// order, the largest score is not that of the tile.
  bool is_pass() const { return cap > 0 || !(before > 0); }

  /// tile: [keys, columns].
  void pass(Tile tile, int64_t keys, int64_t columns) const {
    const F32 d;
    for (int64_t j = 0; j < keys; ++j)
      for (int64_t i = 0; i < columns; i += lanes()) {
        float* at = tile.data + j * tile.stride + i;
        auto score = hn::Mul(hn::LoadU(d, at), hn::Set(d, before));
        if (cap > 0) score = hn::Mul(hn::Set(d, cap), tanh(d, hn::Mul(score, hn::Set(d, 1 / cap))));
        hn::StoreU(score, d, at);
      }
  }
};

// --- masks ---

/// A part of a panel's rows and the keys of a block that at least one of them sees.
struct SeenTile {
  Interval part, keys;
  bool masked;  // some row does not see all of them
};

/// Which keys the rows of a tile see, as floats, counted from the block's first key.
struct Visibility {
  HWY_ALIGN float begin[kAttentionBlock], end[kAttentionBlock];

  void load(const AttentionRows& rows, Interval part, int64_t block) {
    for (int64_t i = 0; i < padded(part.size()); ++i) {
      const Interval keys =
          i < part.size() ? visible_keys(rows.shape, rows.span, rows.query(part.begin + i)) : Interval{block, block};
      begin[i] = static_cast<float>(std::clamp<int64_t>(keys.begin - block, 0, kAttentionBlock));
      end[i] = static_cast<float>(std::clamp<int64_t>(keys.end - block, 0, kAttentionBlock));
    }
  }
};

/// The lanes of a vector of rows that see a key: all, or those of a Visibility.
struct SeeAll {
  HWY_INLINE FloatVector only(FloatVector value, int64_t /*key*/, FloatVector /*otherwise*/) const { return value; }
};
struct SeeSome {
  FloatVector begin, end;

  HWY_INLINE FloatVector only(FloatVector value, int64_t key, FloatVector otherwise) const {
    const auto at = hn::Set(F32(), static_cast<float>(key));
    return hn::IfThenElse(hn::And(hn::Ge(at, begin), hn::Lt(at, end)), value, otherwise);
  }
};

/// Calls body(SeenTile) for the parts of a panel that see keys of a block. A part that the mask cuts is taken in
/// smaller ones, so that little is computed that nobody sees.
template <class Body>
HWY_INLINE void for_each_part(const AttentionRows& rows, Interval panel, Interval block, const Body& body) {
  const auto seen_by = [&](Interval part) { return rows.seen(part, block); };
  for (int64_t first = panel.begin; first < panel.end; first += kAttentionBlock) {
    const Interval whole{first, std::min(first + kAttentionBlock, panel.end)};
    if (rows.all_see(whole, seen_by(whole))) {
      if (!seen_by(whole).empty()) body(SeenTile{whole, seen_by(whole), false});
      continue;
    }
    const int64_t step = kStripVectors * lanes();
    for (int64_t begin = whole.begin; begin < whole.end; begin += step) {
      const Interval part{begin, std::min(begin + step, whole.end)}, keys = seen_by(part);
      if (!keys.empty()) body(SeenTile{part, keys, !rows.all_see(part, keys)});
    }
  }
}

}  // namespace nought::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
