// Rows of blocks of GGUF as bytes with scales, which inputs of 8 bits are multiplied by. Included for each instruction
// set, by rounded_products.cpp.
#ifndef NOUGHT_KERNELS_CPU_CODED_COLUMN_INL_H_ONCE
#define NOUGHT_KERNELS_CPU_CODED_COLUMN_INL_H_ONCE

#include <cstdint>

#include "nought/base/math.h"

namespace nought::cpu {

inline constexpr int64_t kGroup = 32;  // elements that are multiplied at once
inline constexpr int64_t kHalf = 16;   // weights that share a scale, at least

/// Halves of groups in k elements, and zeros up to whole vectors.
constexpr int64_t padded_halves(int64_t k) { return round_up(k / kHalf, 8); }

/// A column of B: an element is its code times the scale of its half of a group, less the minimum of that.
struct CodedColumn {
  int8_t* codes = nullptr;  // [k], none negative unless is_signed
  float* scales = nullptr;  // [k / kHalf]
  float* mins = nullptr;    // [padded_halves(k)]; unused if is_signed
  bool is_signed = false;
};

}  // namespace nought::cpu

#endif

#if defined(NOUGHT_KERNELS_CPU_CODED_COLUMN_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NOUGHT_KERNELS_CPU_CODED_COLUMN_INL_H
#undef NOUGHT_KERNELS_CPU_CODED_COLUMN_INL_H
#else
#define NOUGHT_KERNELS_CPU_CODED_COLUMN_INL_H
#endif

#include <array>
#include <cstring>

#include "nought/kernels/cpu/blocks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nought::cpu::HWY_NAMESPACE {

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

using Integers = __m256i;
using Floats = __m256;

HWY_INLINE Integers bytes_32(const int8_t* from) { return _mm256_loadu_si256(reinterpret_cast<const Integers*>(from)); }

HWY_INLINE float half_to_float(const void* from) {
  uint16_t bits = 0;
  std::memcpy(&bits, from, sizeof(bits));
  return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(bits)));
}

/// Eight bytes as floats, each twice, times `factor`.
HWY_INLINE void store_doubled(uint64_t bytes, float factor, float* to) {
  const Integers values = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<int64_t>(bytes)));
  const Floats scaled = _mm256_mul_ps(_mm256_cvtepi32_ps(values), _mm256_set1_ps(factor));
  const Floats lower = _mm256_unpacklo_ps(scaled, scaled), upper = _mm256_unpackhi_ps(scaled, scaled);
  _mm256_storeu_ps(to, _mm256_permute2f128_ps(lower, upper, 0x20));
  _mm256_storeu_ps(to + 8, _mm256_permute2f128_ps(lower, upper, 0x31));
}

/// Scales and minimums of a block of Q4_K or Q5_K: twelve bytes hold eight of 6 bits each.
HWY_INLINE void unpack_six_bits(const std::byte* block, float* scales, float* mins) {
  std::array<uint32_t, 3> words;
  std::memcpy(words.data(), block + 4, sizeof(words));
  constexpr uint32_t kSix = 0x3f3f3f3f, kFour = 0x0f0f0f0f, kTwo = 0x03030303;
  const auto both = [](uint32_t first, uint32_t second) { return first | static_cast<uint64_t>(second) << 32; };
  const auto top = [](uint32_t word) { return (word >> 6 & kTwo) << 4; };
  store_doubled(both(words[0] & kSix, (words[2] & kFour) | top(words[0])), half_to_float(block), scales);
  store_doubled(both(words[1] & kSix, (words[2] >> 4 & kFour) | top(words[1])), half_to_float(block + 2), mins);
}

HWY_INLINE void unpack_signed_bytes(const std::byte* bytes, float factor, float* scales) {
  for (int i = 0; i < 2; ++i) {
    const Integers values =
        _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes + static_cast<ptrdiff_t>(8) * i)));
    _mm256_storeu_ps(scales + 8 * i, _mm256_mul_ps(_mm256_cvtepi32_ps(values), _mm256_set1_ps(factor)));
  }
}

/// Scales and minimums of the halves of a block.
template <GgufType kType>
HWY_INLINE void unpack_halves(const std::byte* block, int64_t halves, float* scales, float* mins) {
  using enum GgufType;
  if constexpr (kType == q4_0 || kType == q5_0 || kType == q8_0 || kType == iq4_nl) {
    scales[0] = scales[1] = half_to_float(block);
  } else if constexpr (kType == q4_1 || kType == q5_1) {
    scales[0] = scales[1] = half_to_float(block);
    mins[0] = mins[1] = -half_to_float(block + 2);
  } else if constexpr (kType == q4_k || kType == q5_k) {
    unpack_six_bits(block, scales, mins);
  } else if constexpr (kType == q6_k) {
    unpack_signed_bytes(block + 192, half_to_float(block + 208), scales);
  } else {
    SubBlocks sub;
    read_sub_blocks(kType, block, sub);
    for (int64_t half = 0; half < halves; ++half) {
      const auto from = static_cast<size_t>(half * kHalf / sub.size);
      scales[half] = sub.scales[from], mins[half] = sub.mins[from];
    }
  }
}

/// What makes the codes of a type that is not signed positive.
constexpr int bias_of(GgufType type) {
  using enum GgufType;
  return type == q4_0 ? 8 : type == q5_0 ? 16 : type == q3_k ? 4 : type == q6_k ? 32 : type == mxfp4 ? 12 : 0;
}
/// Types whose codes fill a byte: a positive one would be too large to be multiplied in 16 bits.
constexpr bool is_signed(GgufType type) {
  using enum GgufType;
  return type == q8_0 || type == iq4_nl || type == iq4_xs;
}

template <GgufType kType>
void unpack_row_of(const WeightFormat& format, const std::byte* row, int64_t k, const CodedColumn& to) {
  const int64_t halves = format.block / kHalf;
  constexpr int kBias = bias_of(kType);
  for (int64_t at = 0, half = 0; at < k; at += format.block, half += halves, row += format.block_bytes) {
    unpack_codes(kType, row, to.codes + at);
    unpack_halves<kType>(row, halves, to.scales + half, to.mins + half);
    if constexpr (kBias != 0) {
      const Integers bias = _mm256_set1_epi8(kBias);
      for (int64_t i = at; i < at + format.block; i += kGroup)
        _mm256_storeu_si256(reinterpret_cast<Integers*>(to.codes + i), _mm256_add_epi8(bytes_32(to.codes + i), bias));
      for (int64_t i = half; i < half + halves; ++i) to.mins[i] = kBias * to.scales[i];
    }
  }
}
using UnpackRow = void (*)(const WeightFormat&, const std::byte*, int64_t, const CodedColumn&);

/// What unpacks rows of a type.
UnpackRow unpack_row(GgufType type) {
  using enum GgufType;
  switch (type) {
    case q4_0:
      return unpack_row_of<q4_0>;
    case q4_1:
      return unpack_row_of<q4_1>;
    case q5_0:
      return unpack_row_of<q5_0>;
    case q5_1:
      return unpack_row_of<q5_1>;
    case q8_0:
      return unpack_row_of<q8_0>;
    case q2_k:
      return unpack_row_of<q2_k>;
    case q3_k:
      return unpack_row_of<q3_k>;
    case q4_k:
      return unpack_row_of<q4_k>;
    case q5_k:
      return unpack_row_of<q5_k>;
    case q6_k:
      return unpack_row_of<q6_k>;
    case iq4_nl:
      return unpack_row_of<iq4_nl>;
    case iq4_xs:
      return unpack_row_of<iq4_xs>;
    case mxfp4:
      return unpack_row_of<mxfp4>;
    default:
      return nullptr;
  }
}

#endif

}  // namespace nought::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
