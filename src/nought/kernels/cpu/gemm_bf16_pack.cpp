#include "nought/kernels/cpu/gemm_bf16_pack.h"

#include <algorithm>

#if defined(__x86_64__)
#include <immintrin.h>
#if !defined(__clang__)
// GCC 12 warns about values that its own intrinsics leave undefined on purpose (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#define NOUGHT_AVX512 __attribute__((target("avx512f,avx512bw,avx512vl")))
#endif

namespace nought::cpu {

#if defined(__x86_64__)

namespace {

/// Rows from the one that is read to the one that is fetched.
constexpr int64_t kAhead = 32;

/// The first `count` of 16 lanes.
constexpr __mmask16 first(int64_t count) {
  return static_cast<__mmask16>((1u << std::clamp<int64_t>(count, 0, 16)) - 1);
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

/// The same for two panels of 8 columns.
NOUGHT_AVX512 void pack_16_by_8(const bf16_t* low, const bf16_t* high, bf16_t* to, int64_t panel) {
  const __m256i a = load(low), b = load(high);
  const __m256i even = _mm256_unpacklo_epi16(a, b), odd = _mm256_unpackhi_epi16(a, b);  // words 0-3, 8-11; 4-7, 12-15
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_permute2x128_si256(even, odd, 0x20));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + panel), _mm256_permute2x128_si256(even, odd, 0x31));
}

/// Transposes 16 x 16 words.
NOUGHT_AVX512 void transpose(__m512i r[16]) {
  __m512i t[16];
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
    r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
    r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
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
        const __mmask16 keep = first(width), take = static_cast<__mmask16>(first(columns - column - begin) & keep);
        const __m256i first_row = _mm256_maskz_loadu_epi16(take, low + column + begin);
        const __m256i second = _mm256_maskz_loadu_epi16(p + 1 < k ? take : __mmask16{0}, high + column + begin);
        _mm512_mask_storeu_epi32(to + column / width * panel + 2 * begin, keep, interleave(first_row, second));
      }
  }
}

NOUGHT_AVX512 void pack_columns(const bf16_t* from, int64_t stride, int64_t k, int64_t columns, int64_t width,
                                bf16_t* to) {
  for (int64_t group = 0; group < columns; group += width, to += packed_panel(k, width))
    for (int64_t begin = 0; begin < width; begin += 16)
      for (int64_t p = 0; p < k; p += 32) {
        const auto elements = static_cast<__mmask32>((uint64_t{1} << std::min<int64_t>(k - p, 32)) - 1);
        __m512i rows[16];
        for (int64_t i = 0; i < 16; ++i) {
          const int64_t column = group + begin + i;
          rows[i] = column < columns ? _mm512_maskz_loadu_epi16(elements, from + column * stride + p)
                                     : _mm512_setzero_si512();
        }
        transpose(rows);
        const int64_t pairs = std::min<int64_t>((k - p + 1) / 2, 16);
        for (int64_t i = 0; i < pairs; ++i) _mm512_storeu_si512(to + (p + 2 * i) * width + 2 * begin, rows[i]);
      }
}

#else

void pack_rows(const bf16_t*, int64_t, int64_t, int64_t, int64_t, bf16_t*) {}
void pack_columns(const bf16_t*, int64_t, int64_t, int64_t, int64_t, bf16_t*) {}

#endif

}  // namespace nought::cpu
