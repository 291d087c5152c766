#include "nought/kernels/cpu/gemm_bf16_pack.h"

#include <algorithm>

#if defined(__x86_64__)
#include "nought/kernels/cpu/intrinsics.h"
#endif

namespace nought::cpu {

#if defined(__x86_64__)

namespace {

/// Rows from the one that is read to the one that is fetched.
constexpr int64_t kAhead = 32;

/// The first `count` of 32 lanes, count >= 0.
constexpr __mmask32 first_32(int64_t count) {
  return static_cast<__mmask32>((uint64_t{1} << std::min<int64_t>(count, 32)) - 1);
}

/// Words of (low[i], high[i]).
NOUGHT_AVX512 __m512i interleave(__m256i low, __m256i high) {
  return _mm512_or_si512(_mm512_cvtepu16_epi32(low), _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16));
}

NOUGHT_AVX512 __m256i load(const bf16_t* from) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)); }

/// 16 columns of a pair of rows.
NOUGHT_AVX512 void pack_16(const bf16_t* low, const bf16_t* high, bf16_t* to) {
  _mm512_storeu_si512(to, interleave(load(low), load(high)));
}

/// Packs two panels of 8 columns.
NOUGHT_AVX512 void pack_16_by_8(const bf16_t* low, const bf16_t* high, bf16_t* to, int64_t panel) {
  const __m256i a = load(low), b = load(high);
  const __m256i even = _mm256_unpacklo_epi16(a, b), odd = _mm256_unpackhi_epi16(a, b);  // words 0-3, 8-11; 4-7, 12-15
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_permute2x128_si256(even, odd, 0x20));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + panel), _mm256_permute2x128_si256(even, odd, 0x31));
}

/// to: [16][kTileDepth], zero where `from` has no such row or element.
NOUGHT_AVX512 void copy_tile(const bf16_t* from, int64_t stride, int64_t rows, int64_t elements, bf16_t* to) {
  const __mmask32 there = first_32(elements);
  for (int64_t i = 0; i < 16; ++i)
    _mm512_storeu_si512(to + i * kTileDepth,
                        i < rows ? _mm512_maskz_loadu_epi16(there, from + i * stride) : _mm512_setzero_si512());
}

/// to: 16 words, `step` elements from one to the next = the transpose of 16 rows of 16 words, zero where there are
/// none.
NOUGHT_AVX512 void transpose(const bf16_t* from, int64_t stride, int64_t rows, int64_t elements, bf16_t* to,
                             int64_t step) {
  const __mmask32 there = first_32(elements);
  __m512i r[16], t[16];
  for (int64_t i = 0; i < 16; ++i)
    r[i] = i < rows ? _mm512_maskz_loadu_epi16(there, from + i * stride) : _mm512_setzero_si512();
  for (int i = 0; i < 16; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
    t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
  }
  for (int i = 0; i < 4; ++i) {
    _mm512_storeu_si512(to + i * step, _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88));
    _mm512_storeu_si512(to + (i + 4) * step, _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88));
    _mm512_storeu_si512(to + (i + 8) * step, _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd));
    _mm512_storeu_si512(to + (i + 12) * step, _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd));
  }
}

}  // namespace

NOUGHT_AVX512 void pack_rows(const bf16_t* from, int64_t stride, int64_t k, int64_t columns, int64_t width,
                             bf16_t* to) {
  const int64_t panel = packed_panel(k, width);
  for (int64_t p = 0; p < k; p += 2, to += 2 * width) {
    const bf16_t *low = from + p * stride, *high = low + stride;
    // Rows are far apart: the hardware does not foresee them.
    for (int64_t begin = 0; begin < columns; begin += 32) {
      _mm_prefetch(reinterpret_cast<const char*>(low + kAhead * stride + begin), _MM_HINT_T0);
      _mm_prefetch(reinterpret_cast<const char*>(high + kAhead * stride + begin), _MM_HINT_T0);
    }
    int64_t column = 0;
    if (p + 1 < k && width == 8) {
      for (; column + 16 <= columns; column += 16)
        pack_16_by_8(low + column, high + column, to + column / 8 * panel, panel);
    } else if (p + 1 < k) {
      for (; column + width <= columns; column += width)
        for (int64_t begin = 0; begin < width; begin += 16)
          pack_16(low + column + begin, high + column + begin, to + column / width * panel + 2 * begin);
    }
    for (; column < columns; column += width)
      for (int64_t begin = 0; begin < width; begin += 16) {
        const __mmask16 keep = first_16(width),
                        take = static_cast<__mmask16>(first_16(columns - column - begin) & keep);
        const __m256i first_row = _mm256_maskz_loadu_epi16(take, low + column + begin);
        const __m256i second = _mm256_maskz_loadu_epi16(p + 1 < k ? take : __mmask16{0}, high + column + begin);
        _mm512_mask_storeu_epi32(to + column / width * panel + 2 * begin, keep, interleave(first_row, second));
      }
  }
  // `to` is behind the last pair of the first panel: the rest of each is padding.
  const int64_t padding = panel - round_up(k, 2) * width;
  for (int64_t column = 0; column < columns; column += width)
    std::fill_n(to + column / width * panel, padding, bf16_t());
}

NOUGHT_AVX512 void pack_columns(const bf16_t* from, int64_t stride, int64_t k, int64_t columns, int64_t width,
                                bf16_t* to) {
  for (int64_t group = 0; group < columns; group += width, to += packed_panel(k, width))
    for (int64_t begin = 0; begin < width; begin += 16)
      for (int64_t p = 0; p < k; p += 32)
        transpose(from + (group + begin) * stride + p, stride, columns - group - begin, k - p,
                  to + p * width + 2 * begin, 2 * width);
}

NOUGHT_AVX512 void pack_left(const LeftFactor& from, int64_t rows, int64_t k, bf16_t* to) {
  for (int64_t group = 0; group < rows; group += kTileRows)
    for (int64_t p = 0; p < k; p += kTileDepth, to += kLeftTiles)
      for (int64_t row = group; row < std::min(rows, group + kTileRows); row += 16) {
        const bf16_t* at = from.data + row * from.row_step + p / 2 * from.pair_step;
        bf16_t* tile = to + (row - group) * kTileDepth;
        if (from.pair_step == 2) {
          copy_tile(at, from.row_step, rows - row, k - p, tile);
        } else {
          transpose(at, from.pair_step, ceil_div(k - p, 2), 2 * (rows - row), tile, kTileDepth);
        }
      }
}

#else

void pack_rows(const bf16_t*, int64_t, int64_t, int64_t, int64_t, bf16_t*) {}
void pack_columns(const bf16_t*, int64_t, int64_t, int64_t, int64_t, bf16_t*) {}
void pack_left(const LeftFactor&, int64_t, int64_t, bf16_t*) {}

#endif

}  // namespace nought::cpu
