// Rounding numbers to fewer bits: up or down at random, to the grids of the 8-bit formats, and to blocks of codes.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "nought/kernels/ops.h"
#include "nought/tensor/random.h"

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

/// 16 random bits for element `index` of `key`: eight from each Philox block.
inline uint16_t random_bits16(const Philox& block, uint64_t index) {
  return static_cast<uint16_t>(block[index % 8 / 2] >> (16 * (index % 2)));
}
inline uint16_t random_bits16(uint64_t key, uint64_t index) { return random_bits16(philox(key, index / 8), index); }

/// x rounded to 16 bits. The part that rounding would lose is counted in units of 2^-16 of a step. If that part and
/// `random` together make a step, x is rounded away from zero; else towards zero.
inline bf16_t round_stochastic(float x, uint16_t random, bf16_t) {
  if (!std::isfinite(x)) return bf16_t(x);
  constexpr uint32_t kLargest = 0x7F7F;
  const uint32_t u = std::bit_cast<uint32_t>(x), magnitude = ((u & 0x7FFFFFFFu) + random) >> 16;
  bf16_t y;
  y.bits = static_cast<uint16_t>((u >> 16 & 0x8000u) | std::min(magnitude, kLargest));
  return y;
}
inline f16_t round_stochastic(float x, uint16_t random, f16_t) {
  if (!std::isfinite(x)) return f16_t(x);
  constexpr float kLargest = 65504.0f;
  const float a = std::min(std::abs(x), kLargest);
  // Steps of the format at x, as a power of two: 2^-24 below the least normal number, 2^-14.
  const int exponent = std::max(static_cast<int>(std::bit_cast<uint32_t>(a) >> 23) - 127, -14);
  const float steps = std::ldexp(a, 10 - exponent), whole = std::floor(steps);
  const bool up = (steps - whole) * 65536.0f > static_cast<float>(65535 - random);
  const float y = std::min(std::ldexp(whole + (up ? 1.0f : 0.0f), exponent - 10), kLargest);
  return f16_t(std::copysign(y, x));
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
