// Products of the tiles of attention, in registers: factors of 32-bit words, each an fp32 number or a pair of bf16.
// This file is compiled once per target.
#if defined(NOUGHT_KERNELS_CPU_ATTENTION_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NOUGHT_KERNELS_CPU_ATTENTION_PRODUCTS_INL_H_
#undef NOUGHT_KERNELS_CPU_ATTENTION_PRODUCTS_INL_H_
#else
#define NOUGHT_KERNELS_CPU_ATTENTION_PRODUCTS_INL_H_
#endif

#include "nought/kernels/cpu/attention.h"
#include "nought/kernels/cpu/dot_tiles.h"
#include "nought/kernels/cpu/words-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nought::cpu::HWY_NAMESPACE {

/// Word (i, p) of a left factor is data[i * row + p * inner].
struct Left {
  const float* data;
  int64_t row, inner;

  Left from_row(int64_t i) const { return {data + i * row, row, inner}; }
};
/// Word (p, j) of a right factor is data[j / kAttentionBlock * panel + p * stride + j % kAttentionBlock].
struct Right {
  const float* data;
  int64_t stride, panel = kAttentionBlock;

  const float* column(int64_t j) const { return data + j / kAttentionBlock * panel + j % kAttentionBlock; }
};
struct Tile {
  float* data;
  int64_t stride;
};

/// The sums that a strip holds in registers: enough that none waits for the one before, and few loads for each. The
/// older sets have 16 registers.
#if HWY_TARGET == HWY_AVX3
inline constexpr int kStripRows = 8, kStripVectors = 2;
#else
inline constexpr int kStripRows = 6, kStripVectors = 2;
#endif

/// kRows rows by kVectors vectors: c [+]= sum over p < inner of a(i, p) * b(p, j).
template <class Arithmetic, int kRows, int kVectors>
HWY_INLINE void multiply_strip(Left a, const float* b, int64_t stride, int64_t inner, Tile c, bool accumulate) {
  const F32 d;
  constexpr size_t kLanes = hn::MaxLanes(F32());
  FloatVector sums[kRows][kVectors];
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j)
      sums[i][j] = accumulate ? hn::LoadU(d, c.data + i * c.stride + j * kLanes) : hn::Zero(d);
  }
  for (int64_t p = 0; p < inner; ++p, b += stride, a.data += a.inner) {
    FloatVector columns[kVectors];
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) columns[j] = hn::LoadU(d, b + j * kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < kRows; ++i) {
      const auto left = hn::Set(d, a.data[i * a.row]);
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) sums[i][j] = Arithmetic::add(sums[i][j], left, columns[j]);
    }
  }
#pragma GCC unroll 16
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) hn::StoreU(sums[i][j], d, c.data + i * c.stride + j * kLanes);
  }
}

/// kVectors vectors of all rows.
template <class Arithmetic, int kVectors>
void multiply_strips(Left a, const float* b, int64_t stride, int64_t inner, Tile c, int64_t rows, bool accumulate) {
  int64_t i = 0;
  const auto strips = [&](auto count) HWY_ATTR {
    constexpr int kRows = decltype(count)::value;
    for (; i + kRows <= rows; i += kRows)
      multiply_strip<Arithmetic, kRows, kVectors>(a.from_row(i), b, stride, inner, {c.data + i * c.stride, c.stride},
                                                  accumulate);
  };
  strips(std::integral_constant<int, kStripRows>());
  strips(std::integral_constant<int, 4>());
  strips(std::integral_constant<int, 2>());
  strips(std::integral_constant<int, 1>());
}

/// c: [rows, columns] [+]= a: [rows, inner] times b: [inner, columns]. Columns are rounded up to whole vectors.
template <class Arithmetic>
void multiply(Left a, Right b, int64_t inner, Tile c, int64_t rows, int64_t columns, bool accumulate) {
  const int64_t vectors = ceil_div(columns, lanes());
  int64_t v = 0;
  for (; v + kStripVectors <= vectors; v += kStripVectors)
    multiply_strips<Arithmetic, kStripVectors>(a, b.column(v * lanes()), b.stride, inner,
                                               {c.data + v * lanes(), c.stride}, rows, accumulate);
  for (; v < vectors; ++v)
    multiply_strips<Arithmetic, 1>(a, b.column(v * lanes()), b.stride, inner, {c.data + v * lanes(), c.stride}, rows,
                                   accumulate);
}

/// The products of fp32 tiles.
struct FloatUnit {
  void multiply(Left a, Right b, int64_t inner, Tile c, int64_t rows, int64_t columns, bool accumulate) const {
    HWY_NAMESPACE::multiply<Fma>(a, b, inner, c, rows, columns, accumulate);
  }
};

#if HWY_TARGET == HWY_AVX3

/// The products of bf16 tiles: by AMX where isa() has it.
class DotUnit {
 public:
  bool has_tiles() const { return session_.unit() != TileUnit::none; }

  void multiply(Left a, Right b, int64_t inner, Tile c, int64_t rows, int64_t columns, bool accumulate) const {
    if (!has_tiles()) return HWY_NAMESPACE::multiply<Dots>(a, b, inner, c, rows, columns, accumulate);
    const LeftFactor left{reinterpret_cast<const bf16_t*>(a.data), 2 * a.row, 2 * a.inner};
    multiply_tiles(session_, left, {reinterpret_cast<const bf16_t*>(b.data), 2 * b.panel}, 2 * inner,
                   {c.data, c.stride}, rows, round_up(columns, lanes()), accumulate);
  }

 private:
  const TileSession session_{tile_unit()};
};

/// Two vectors rounded to bf16 as words: the first one in the lower halves.
HWY_INLINE FloatVector paired(FloatVector first, FloatVector second) {
  const __m512i order = _mm512_or_si512(
      _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
      _mm512_slli_epi32(_mm512_set_epi32(31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16), 16));
  return FloatVector{_mm512_castsi512_ps(_mm512_permutexvar_epi16(order, converted(first, second)))};
}

#endif

}  // namespace nought::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
