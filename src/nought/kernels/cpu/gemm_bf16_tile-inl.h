// The tile of sums in registers that bf16 products are made of: rows of A times one packed panel of B. Include in a
// source for x86-64; call only where has_bf16_gemm().
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include <immintrin.h>

#include "nought/tensor/dtype.h"

#if !defined(__clang__)
// GCC 12 warns about values that its own intrinsics leave undefined on purpose (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#define NOUGHT_AVX512_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))
/// What a lambda in an inner loop needs: what it captures stays in registers.
#define NOUGHT_AVX512_BF16_INLINE NOUGHT_AVX512_BF16 __attribute__((always_inline))

namespace nought::cpu {

/// Where a tile's sums come from and go to.
struct TileOfSums {
  const float* before = nullptr;  // earlier sums, or what is added to; null: nothing
  float* sums = nullptr;          // f32; null: the tile is finished in `rounded`
  bf16_t* rounded = nullptr;
  const bf16_t* bias = nullptr;
  int64_t before_stride = 0, stride = 0;
  int64_t columns = 0;      // of the tile that there are
  bool accumulate = false;  // adds to `rounded`
};

constexpr __mmask16 mask_of(int64_t columns, int64_t vector) {
  return static_cast<__mmask16>((1u << std::clamp<int64_t>(columns - 16 * vector, 0, 16)) - 1);
}

NOUGHT_AVX512_BF16 inline __m512 widen(__m256i values) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(values), 16));
}

NOUGHT_AVX512_BF16 inline __m256i round_to_bf16(__m512 values) {
  const __m256bh rounded = _mm512_cvtneps_pbh(values);
  __m256i bits;
  std::memcpy(&bits, &rounded, sizeof bits);
  return bits;
}

/// Masked loads and stores, or plain ones where the whole vector is there: those cost less.
template <bool whole>
struct Lanes {
  __mmask16 mask;

  NOUGHT_AVX512_BF16 __m512 load(const float* from) const {
    if constexpr (whole) return _mm512_loadu_ps(from);
    return _mm512_maskz_loadu_ps(mask, from);
  }
  NOUGHT_AVX512_BF16 __m512 load(const bf16_t* from) const {
    if constexpr (whole) return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
    return widen(_mm256_maskz_loadu_epi16(mask, from));
  }
  NOUGHT_AVX512_BF16 void store(float* to, __m512 values) const {
    if constexpr (whole) return _mm512_storeu_ps(to, values);
    _mm512_mask_storeu_ps(to, mask, values);
  }
  NOUGHT_AVX512_BF16 void store(bf16_t* to, __m512 values) const {
    if constexpr (whole) return _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), round_to_bf16(values));
    _mm256_mask_storeu_epi16(to, mask, round_to_bf16(values));
  }
};

template <class Lanes>
NOUGHT_AVX512_BF16 inline void finish(const TileOfSums& tile, int64_t row, int64_t vector, __m512 sum, Lanes lanes) {
  const int64_t at = 16 * vector;
  if (tile.before != nullptr) sum = _mm512_add_ps(lanes.load(tile.before + row * tile.before_stride + at), sum);
  if (tile.bias != nullptr) sum = _mm512_add_ps(sum, lanes.load(tile.bias + at));
  if (tile.sums != nullptr) return lanes.store(tile.sums + row * tile.stride + at, sum);
  bf16_t* out = tile.rounded + row * tile.stride + at;
  if (tile.accumulate) sum = _mm512_add_ps(lanes.load(out), sum);
  lanes.store(out, sum);
}

NOUGHT_AVX512_BF16 inline __m512 dot(__m512 sum, __m512i a, __m512i b) {
  __m512bh x, y;
  std::memcpy(&x, &a, sizeof x);
  std::memcpy(&y, &b, sizeof y);
  return _mm512_dpbf16_ps(sum, x, y);
}

inline int32_t word_at(const bf16_t* from) {
  int32_t word;
  std::memcpy(&word, from, sizeof word);
  return word;
}

/// `rows` x 16 `vectors` of C. a: rows of `row_step` elements from one to the next, pairs of `pair_step`; b: a panel of
/// `width` columns.
template <int rows, int vectors, int width>
NOUGHT_AVX512_BF16_INLINE inline void multiply_tile(int64_t k, const bf16_t* a, int64_t row_step, int64_t pair_step,
                                                    const bf16_t* b, const TileOfSums& tile) {
  __m512 sums[rows][vectors];
#pragma GCC unroll 8
  for (auto& row : sums)
#pragma GCC unroll 4
    for (__m512& sum : row) sum = _mm512_setzero_ps();
  const auto add_pair = [&](auto word_of) NOUGHT_AVX512_BF16 {
    __m512i columns[vectors];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; ++v) columns[v] = _mm512_loadu_si512(b + 32 * v);
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r) {
      const __m512i word = _mm512_set1_epi32(word_of(a + r * row_step));
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) sums[r][v] = dot(sums[r][v], word, columns[v]);
    }
  };
  for (int64_t pair = 0; pair < k / 2; ++pair, a += pair_step, b += 2 * width) add_pair(word_at);
  if (k % 2 != 0) {
    // Behind the last element of a row there may be anything, or no memory.
    add_pair([](const bf16_t* last) { return static_cast<int32_t>(last->bits); });
  }
  const auto finish_all = [&](auto lanes_of) NOUGHT_AVX512_BF16 {
#pragma GCC unroll 8
    for (int r = 0; r < rows; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < vectors; ++v) finish(tile, r, v, sums[r][v], lanes_of(v));
  };
  if (tile.columns >= 16 * vectors) {
    finish_all([](int) { return Lanes<true>{}; });
  } else {
    finish_all([&](int vector) { return Lanes<false>{mask_of(tile.columns, vector)}; });
  }
}

/// Calls f with std::integral_constant<int, count>, 1 <= count <= most: as many rows or vectors as a tile has.
template <int most, class F>
NOUGHT_AVX512_BF16_INLINE inline void with_count(int64_t count, const F& f) {
  if constexpr (most > 1) {
    if (count < most) return with_count<most - 1>(count, f);
  }
  f(std::integral_constant<int, most>());
}

}  // namespace nought::cpu
