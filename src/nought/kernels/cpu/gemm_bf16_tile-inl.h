// The tiles of sums that bf16 products are made of, in registers or in AMX: rows of A times one packed panel of B.
// Include in a source for x86-64; call only where has_bf16_units().
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "nought/kernels/cpu/gemm_bf16_pack.h"
#include "nought/kernels/cpu/gemm_tile.h"
#include "nought/kernels/cpu/intrinsics.h"
#include "nought/kernels/cpu/scratch.h"

namespace nought::cpu {

using TileOfRoundedSums = TileOfSums<bf16_t>;

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
NOUGHT_AVX512_BF16_INLINE inline void finish(const TileOfRoundedSums& tile, int64_t row, int64_t vector, __m512 sum,
                                             Lanes lanes) {
  const int64_t at = 16 * vector;
  if (tile.before != nullptr) sum = _mm512_add_ps(lanes.load(tile.before + row * tile.before_stride + at), sum);
  if (tile.bias != nullptr) sum = _mm512_add_ps(sum, lanes.load(tile.bias + at));
  if (tile.sums != nullptr) return lanes.store(tile.sums + row * tile.stride + at, sum);
  bf16_t* out = tile.rounded + row * tile.stride + at;
  if (tile.accumulate) sum = _mm512_add_ps(lanes.load(out), sum);
  lanes.store(out, sum);
}

/// Earlier sums are far away by now; they are needed when this tile's are done.
inline void fetch_before(const TileOfRoundedSums& tile, int64_t rows, int64_t vectors) {
  if (tile.before == nullptr) return;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t vector = 0; vector < vectors; ++vector)
      _mm_prefetch(reinterpret_cast<const char*>(tile.before + row * tile.before_stride + 16 * vector), _MM_HINT_T0);
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
NOUGHT_AVX512_BF16 __attribute__((noinline)) void multiply_tile(int64_t k, const bf16_t* a, int64_t row_step,
                                                                int64_t pair_step, const bf16_t* b,
                                                                const TileOfRoundedSums& tile) {
  __m512 sums[rows][vectors];
#pragma GCC unroll 8
  for (auto& row : sums)
#pragma GCC unroll 4
    for (__m512& sum : row) sum = _mm512_setzero_ps();
  fetch_before(tile, rows, vectors);
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
    finish_all([&](int vector) { return Lanes<false>{first_16(tile.columns - 16 * vector)}; });
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

/// `rows` of a left factor, at most `most_rows`, times a panel of `width` columns: by dot products.
template <int64_t most_rows, int64_t width>
NOUGHT_AVX512_BF16 inline void multiply_rows(const LeftFactor& factor, int64_t rows, int64_t k, const bf16_t* panel,
                                             const TileOfRoundedSums& tile) {
  with_count<width / 16>(ceil_div(tile.columns, 16), [&](auto vectors) NOUGHT_AVX512_BF16_INLINE {
    with_count<most_rows>(rows, [&](auto count) NOUGHT_AVX512_BF16_INLINE {
      multiply_tile<decltype(count)::value, decltype(vectors)::value, width>(k, factor.data, factor.row_step,
                                                                             factor.pair_step, panel, tile);
    });
  });
}

/// Rows of a left factor for panels of `width` columns: by tiles of AMX, into which it is packed.
template <int64_t width>
class TilesLeft {
 public:
  static constexpr int64_t kRows = kTileRows, kWidth = width;

  TilesLeft(const LeftFactor& factor, int64_t rows, int64_t k)
      : k_(k), tiles_(bytes_for<bf16_t>(packed_left(rows, k))) {
    pack_left(factor, rows, k, tiles_.data<bf16_t>());
  }

  NOUGHT_AVX512_BF16 void multiply(const TileSession& session, int64_t row, int64_t rows, const bf16_t* panel,
                                   const TileOfRoundedSums& tile) const {
    alignas(64) float sums[kTileRows * kTileColumns];
    TileProduct product{.depths = ceil_div(k_, kTileDepth),
                        .a = tiles_.data<bf16_t>() + packed_left(row, k_),
                        .b_stride = 2 * width,
                        .row_tiles = rows > 16 ? 2 : 1,
                        .sums = sums};
    for (int64_t column = 0; column < tile.columns; column += kTileColumns) {
      product.b = panel + 2 * column;
      product.column_tiles = tile.columns - column > 16 ? 2 : 1;
      const TileOfRoundedSums part = tile.from(column);
      fetch_before(part, rows, product.column_tiles);
      session.multiply(product);
      finish_sums(part, rows, sums);
    }
  }

 private:
  NOUGHT_AVX512_BF16 static void finish_sums(const TileOfRoundedSums& tile, int64_t rows, const float* sums) {
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t vector = 0; vector < std::min(ceil_div(tile.columns, 16), kTileColumns / 16); ++vector) {
        const __m512 sum = _mm512_load_ps(sums + row * kTileColumns + 16 * vector);
        if (tile.columns >= 16 * (vector + 1)) {
          finish(tile, row, vector, sum, Lanes<true>{});
        } else {
          finish(tile, row, vector, sum, Lanes<false>{first_16(tile.columns - 16 * vector)});
        }
      }
  }

  int64_t k_;
  Scratch tiles_;
};

}  // namespace nought::cpu
