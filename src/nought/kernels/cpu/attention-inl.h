// What forward and backward attention share: rows widened to fp32, and products of small fp32 tiles. This file is
// compiled once per target. Tiles are 64-byte aligned; their rows are padded with zeros to whole vectors and to groups
// of four.
#if defined(NOUGHT_KERNELS_CPU_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NOUGHT_KERNELS_CPU_ATTENTION_INL_H_
#undef NOUGHT_KERNELS_CPU_ATTENTION_INL_H_
#else
#define NOUGHT_KERNELS_CPU_ATTENTION_INL_H_
#endif

#include "nought/kernels/cpu/attention.h"
#include "nought/kernels/cpu/math-inl.h"
#include "nought/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nought::cpu::HWY_NAMESPACE {

using FloatVector = hn::Vec<F32>;

inline int64_t lanes() { return static_cast<int64_t>(hn::Lanes(F32())); }
/// Columns of a tile of `n` elements per row.
inline int64_t padded(int64_t n) { return round_up(n, std::max<int64_t>(4, lanes())); }

// --- rows ---

/// to[0, padded) = factor * the head's elements, then zeros.
inline void load_row(const Heads& x, int64_t token, int64_t head, int64_t head_dim, float factor, float* to) {
  const int64_t at = x.at(token, head, head_dim);
  visit(x.base.dtype(), [=, &x](auto tag) HWY_ATTR {
    const F32 d;
    const auto* from = x.base.data<typename decltype(tag)::type>() + at;
    const auto scale = hn::Set(d, factor);
    sweep(d, 0, head_dim,
          [=](int64_t i, auto access) HWY_ATTR { hn::StoreU(hn::Mul(scale, access.load(d, from + i)), d, to + i); });
  });
}

/// The head's elements = factor * from.
inline void store_row(const Heads& x, int64_t token, int64_t head, int64_t head_dim, float factor, const float* from) {
  const int64_t at = x.at(token, head, head_dim);
  visit(x.base.dtype(), [=, &x](auto tag) HWY_ATTR {
    const F32 d;
    auto* to = x.base.data<typename decltype(tag)::type>() + at;
    const auto scale = hn::Set(d, factor);
    sweep(d, 0, head_dim,
          [=](int64_t i, auto access) HWY_ATTR { access.store(d, hn::Mul(scale, hn::LoadU(d, from + i)), to + i); });
  });
}

/// One block of keys or values as fp32 rows; rows up to a multiple of four become zero.
inline void load_keys(const AttentionRows& rows, const Heads& x, int64_t head_dim, Interval keys, float* to) {
  const int64_t width = padded(head_dim);
  for (int64_t j = keys.begin; j < keys.end; ++j) {
    load_row(x, rows.key_token(j), rows.kv_head, head_dim, 1, to + (j - keys.begin) * width);
  }
  std::fill(to + keys.size() * width, to + round_up(keys.size(), 4) * width, 0.0f);
}

/// Where the key/value head of a key lies in a bf16 tensor.
inline const bf16_t* head_of(const AttentionRows& rows, const Heads& x, int64_t head_dim, int64_t key) {
  return x.base.data<bf16_t>() + x.at(rows.key_token(key), rows.kv_head, head_dim);
}

/// to: [panel, head_dim] = the heads' elements, bf16 as they are.
inline void load_rounded(const AttentionRows& rows, const Heads& x, int64_t head_dim, Interval panel, bf16_t* to) {
  for (int64_t row = panel.begin; row < panel.end; ++row, to += head_dim)
    std::copy_n(x.base.data<bf16_t>() + x.at(rows.token(row), rows.head(row), head_dim), head_dim, to);
}

/// to: [columns, kAttentionBlock] = the transpose of from: [rows, width], zeros to whole vectors of rows.
inline void transpose(const float* from, int64_t rows, int64_t columns, int64_t width, float* to) {
  for (int64_t j = 0; j < columns; ++j) {
    float* out = to + j * kAttentionBlock;
    for (int64_t i = 0; i < rows; ++i) out[i] = from[i * width + j];
    std::fill(out + rows, out + padded(rows), 0.0f);
  }
}

inline void scale_row(float factor, int64_t width, float* row) {
  const F32 d;
  for (int64_t i = 0; i < width; i += lanes()) hn::Store(hn::Mul(hn::Set(d, factor), hn::Load(d, row + i)), d, row + i);
}

inline float dot_rows(const float* a, const float* b, int64_t width) {
  const F32 d;
  auto sum = hn::Zero(d);
  for (int64_t i = 0; i < width; i += lanes()) sum = hn::MulAdd(hn::Load(d, a + i), hn::Load(d, b + i), sum);
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

/// scores = cap * tanh(scores / cap).
inline void cap_scores(float cap, int64_t columns, float* scores) {
  const F32 d;
  const auto limit = hn::Set(d, cap), inverse = hn::Set(d, 1 / cap);
  for (int64_t j = 0; j < columns; j += lanes())
    hn::Store(hn::Mul(limit, tanh(d, hn::Mul(hn::Load(d, scores + j), inverse))), d, scores + j);
}

/// A mask with a 1 for each column of the vector at `column` that lies in `range`.
HWY_INLINE hn::Mask<F32> columns_in(Interval range, int64_t column) {
  const F32 d;
  const auto index = hn::Iota(d, static_cast<float>(column));
  return hn::And(hn::Ge(index, hn::Set(d, static_cast<float>(range.begin))),
                 hn::Lt(index, hn::Set(d, static_cast<float>(range.end))));
}

// --- products of tiles ---

/// Element (i, p) of the left factor is data[i * row + p * inner]: a tile or its transpose.
struct LeftTile {
  const float* data;
  int64_t row, inner;
};
struct Tile {
  float* data;
  int64_t stride;
};

/// Vectors of c that a strip holds in registers for four rows: 4 x 4 of AVX-512's 32, 4 x 2 of the older sets' 16.
inline constexpr int kStripVectors = HWY_TARGET <= HWY_AVX3 && HWY_TARGET >= HWY_AVX3_DL ? 4 : 2;

/// Four rows by kVectors vectors: c [+]= sum over p < inner of a(i, p) * b(p, j).
template <int kVectors>
HWY_INLINE void multiply_strip(LeftTile a, const Tile& b, int64_t inner, const Tile& c, bool accumulate) {
  const F32 d;
  constexpr size_t kLanes = hn::MaxLanes(F32());
  FloatVector sums[4][kVectors];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
      sums[i][j] = accumulate ? hn::Load(d, c.data + i * c.stride + j * kLanes) : hn::Zero(d);
    }
  }
  const float* right = b.data;
  for (int64_t p = 0; p < inner; ++p, right += b.stride, a.data += a.inner) {
    FloatVector columns[kVectors];
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) columns[j] = hn::Load(d, right + j * kLanes);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const auto left = hn::Set(d, a.data[i * a.row]);
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) sums[i][j] = hn::MulAdd(left, columns[j], sums[i][j]);
    }
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) hn::Store(sums[i][j], d, c.data + i * c.stride + j * kLanes);
  }
}

template <int kVectors>
void multiply_strips(LeftTile a, Tile b, int64_t inner, Tile c, int64_t rows, bool accumulate) {
  for (int64_t i = 0; i < rows; i += 4) {
    multiply_strip<kVectors>({a.data + i * a.row, a.row, a.inner}, b, inner, {c.data + i * c.stride, c.stride},
                             accumulate);
  }
}

/// c: [rows, columns] [+]= a: [rows, inner] times b: [inner, columns]. Rows are rounded up to four, columns to vectors.
inline void multiply(LeftTile a, Tile b, int64_t inner, Tile c, int64_t rows, int64_t columns, bool accumulate) {
  int64_t left = ceil_div(columns, lanes());
  while (left > 0) {
    const int64_t vectors = std::min<int64_t>(left, kStripVectors);
    if (vectors >= 4) {
      multiply_strips<kStripVectors>(a, b, inner, c, rows, accumulate);
    } else if (vectors == 3) {
      multiply_strips<std::min(3, kStripVectors)>(a, b, inner, c, rows, accumulate);
    } else if (vectors == 2) {
      multiply_strips<2>(a, b, inner, c, rows, accumulate);
    } else {
      multiply_strips<1>(a, b, inner, c, rows, accumulate);
    }
    b.data += vectors * lanes();
    c.data += vectors * lanes();
    left -= vectors;
  }
}

}  // namespace nought::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
