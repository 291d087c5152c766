// Rounding numbers to fewer bits: to the grids of the 8-bit formats, and to blocks of codes.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "nought/kernels/narrowing.h"
#include "nought/kernels/ops.h"

namespace nought {

/// The grid of an 8-bit format.
struct Fp8Format {
  int mantissa_bits;
  int least_exponent;  // The exponent of the least normal value.
  float largest;

  static constexpr Fp8Format of(Fp8 format) {
    return format == Fp8::e4m3 ? Fp8Format{3, -6, 448.0f} : Fp8Format{2, -14, 57344.0f};
  }
};

/// The power of two by which `largest` is multiplied to lie in the format's highest binade, over 2^margin. 1 for 0 and
/// for what is not finite.
inline double fp8_scale(double largest, Fp8 format, int margin) {
  if (largest == 0 || !std::isfinite(largest)) return 1;
  constexpr int kLimit = 100;  // far from where bf16 ends
  const int exponent = std::ilogb(double{Fp8Format::of(format).largest} / largest) - margin;
  return std::ldexp(1.0, std::clamp(exponent, -kLimit, kLimit));
}

/// The scale of an operation, which the kernel alone may ask for: `largest` lies on the device.
inline double taken_scale(const RoundFp8& op) {
  return op.largest ? fp8_scale(double{*op.largest.data<float>()}, op.format, op.margin) : op.scale;
}

inline constexpr uint8_t kMxNaN = 255;  // as a scale of EncodeMxfp8

/// The code of x in E4M3, to the nearest and ties to even. |x| <= 448.
constexpr uint8_t e4m3_code(float x) {
  const uint32_t sign = std::bit_cast<uint32_t>(x) >> 31 << 7;
  const float a = std::bit_cast<float>(std::bit_cast<uint32_t>(x) & 0x7FFFFFFFu);
  constexpr float kSteps = 12582912.0f;  // 1.5 * 2^23: added and taken away, whole numbers are left
  if (a < 0x1p-6f) return static_cast<uint8_t>(sign | static_cast<uint32_t>(a * 512.0f + kSteps - kSteps));
  const uint32_t u = std::bit_cast<uint32_t>(a), rounded = u + 0x7FFFFu + (u >> 20 & 1u);
  return static_cast<uint8_t>(sign | ((rounded >> 20) - ((127 - 7) << 3)));
}

/// 2^exponent, of a normal number.
constexpr float power_of_two(int exponent) { return std::bit_cast<float>(static_cast<uint32_t>(exponent + 127) << 23); }

/// The value of a code of E4M3.
constexpr float e4m3_value(uint8_t code) {
  const int exponent = code >> 3 & 15;
  const auto mantissa = static_cast<float>(code & 7);
  if (exponent == 15 && (code & 7) == 7) return std::numeric_limits<float>::quiet_NaN();
  const float a = exponent == 0 ? mantissa * 0x1p-9f : (8 + mantissa) * power_of_two(exponent - 10);
  return (code & 128) != 0 ? -a : a;
}

/// The largest code of E4M3 whose value times 2^exponent is a finite number of T.
template <class T>
uint8_t largest_mx_code(int exponent) {
  constexpr double kLargest = std::is_same_v<T, f16_t>    ? 65504.0
                              : std::is_same_v<T, bf16_t> ? 0x1.FEp127
                                                          : double{std::numeric_limits<float>::max()};
  uint8_t code = 0x7E;
  while (std::ldexp(double{e4m3_value(code)}, exponent) > kLargest) --code;
  return code;
}

/// The codes of at most kMxBlock values, and their scale, which it returns: see EncodeMxfp8.
template <class T>
uint8_t encode_mx(const T* x, int64_t count, uint8_t* codes) {
  constexpr float kMost = 448.0f;
  float values[kMxBlock];
  uint32_t largest = 0;  // as bits: they are ordered as the magnitudes are, and what is not finite is above
  for (int64_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(x[i]);
    largest = std::max(largest, std::bit_cast<uint32_t>(values[i]) & 0x7FFFFFFFu);
  }
  if (largest >= 0x7F800000u) {
    std::fill_n(codes, count, uint8_t{0});
    return kMxNaN;
  }
  int exponent = std::max(static_cast<int>(largest >> 23) - 127 - 8, -126);
  if (std::bit_cast<float>(largest) * power_of_two(-exponent) > kMost) ++exponent;
  const float factor = power_of_two(-exponent);
  for (int64_t i = 0; i < count; ++i) codes[i] = e4m3_code(values[i] * factor);
  if (const uint8_t most = largest_mx_code<T>(exponent); most < 0x7E)
    for (int64_t i = 0; i < count; ++i)
      codes[i] = static_cast<uint8_t>((codes[i] & 128) | std::min<int>(codes[i] & 127, most));
  return static_cast<uint8_t>(exponent + 127);
}

/// The largest scale that f16 can hold, and its least normal number. Below that its steps are all of one size.
inline constexpr float kLargestScale = 65504.0f, kLeastNormalScale = 0x1p-14f, kScaleStep = 0x1p-24f;

namespace detail {

/// The codes of a block for a scale. Returns the largest error.
template <class T, class Sum>
Sum codes_for(const T* x, Sum scale, int8_t* codes) {
  Sum worst = 0;
  for (int64_t i = 0; i < kCodeBlock; ++i) {
    const Sum value = static_cast<Sum>(x[i]), code = std::clamp(std::round(value / scale), Sum{-127}, Sum{127});
    codes[i] = static_cast<int8_t>(code);
    worst = std::max(worst, std::abs(value - code * scale));
  }
  return worst;
}

}  // namespace detail

/// The codes of kCodeBlock values, and the scale that it returns: see QuantizeBlocks.
template <class T>
f16_t quantize_block(const T* x, int8_t* codes) {
  using Sum = accumulator_t<T>;
  Sum largest = 0;
  bool finite = true;
  for (int64_t i = 0; i < kCodeBlock; ++i) {
    const Sum value = static_cast<Sum>(x[i]);
    finite = finite && std::isfinite(value);
    largest = std::max(largest, std::abs(value));
  }
  std::fill_n(codes, kCodeBlock, int8_t{0});
  if (!finite || largest > Sum{127} * Sum{kLargestScale}) return f16_t(std::numeric_limits<float>::quiet_NaN());
  if (largest == 0) return f16_t();
  const f16_t nearest(static_cast<float>(largest / 127));
  if (float{nearest} >= kLeastNormalScale) {
    detail::codes_for(x, static_cast<Sum>(float{nearest}), codes);
    return nearest;
  }
  // One step more where the nearest scale is too small for the largest value, or where the next one loses nothing: then
  // these are values of codes, and get theirs again.
  const float least = std::max(float{nearest}, kScaleStep), next = least + kScaleStep;
  int8_t others[kCodeBlock];
  detail::codes_for(x, static_cast<Sum>(least), codes);
  const bool next_is_exact = detail::codes_for(x, static_cast<Sum>(next), others) == 0;
  if (largest <= Sum{127.5} * static_cast<Sum>(least) && !next_is_exact) return f16_t(least);
  std::copy_n(others, kCodeBlock, codes);
  return f16_t(next);
}

}  // namespace nought
