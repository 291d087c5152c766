// Rounding to fewer bits, as the reference and device code do it: from any float to any other once, and to 16 bits at
// random. All of it is constexpr, so that it can be compiled for devices too.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "nought/tensor/dtype.h"
#include "nought/tensor/random.h"

namespace nought {

/// `value` rounded to To once. A double on its way to 16 bits passes through fp32 rounded to odd: the lost bits stay
/// visible in the last one, so that the second rounding sees on which side of its midpoint the value lies.
template <class To, class From>
constexpr To rounded(From value) {
  if constexpr (std::is_same_v<From, double> && sizeof(To) == 2) {
    const auto narrow = static_cast<float>(value);
    const auto kept = static_cast<double>(narrow);
    uint32_t bits = std::bit_cast<uint32_t>(narrow);
    const bool is_finite = (bits & 0x7FFFFFFFu) < 0x7F800000u;
    if (is_finite && kept != value) {
      if ((kept < 0 ? -kept : kept) > (value < 0 ? -value : value)) --bits;  // its neighbour towards 0
      bits |= 1u;
    }
    return static_cast<To>(std::bit_cast<float>(bits));
  } else {
    return static_cast<To>(value);
  }
}

/// 16 random bits for element `index` of `key`: eight from each Philox block.
constexpr uint16_t random_bits16(const Philox& block, uint64_t index) {
  return static_cast<uint16_t>(block[index % 8 / 2] >> (16 * (index % 2)));
}
constexpr uint16_t random_bits16(uint64_t key, uint64_t index) { return random_bits16(philox(key, index / 8), index); }

/// x rounded to 16 bits. The part that rounding would lose is counted in units of 2^-16 of a step. If that part and
/// `random` together make a step, x is rounded away from zero; else towards zero. What is finite stays so.
constexpr bf16_t round_stochastic(float x, uint16_t random, bf16_t) {
  constexpr uint32_t kLargest = 0x7F7F;
  const uint32_t u = std::bit_cast<uint32_t>(x), a = u & 0x7FFFFFFFu;
  if (a >= 0x7F800000u) return bf16_t(x);
  const uint32_t magnitude = (a + random) >> 16;
  bf16_t y;
  y.bits = static_cast<uint16_t>((u >> 16 & 0x8000u) | (magnitude < kLargest ? magnitude : kLargest));
  return y;
}
constexpr f16_t round_stochastic(float x, uint16_t random, f16_t) {
  constexpr uint32_t kLargest = 0x7BFF;
  const uint32_t u = std::bit_cast<uint32_t>(x), a = u & 0x7FFFFFFFu, sign = u >> 16 & 0x8000u;
  if (a >= 0x7F800000u) return f16_t(x);
  uint32_t code = kLargest;  // from 65504 on
  if (a < 0x477FE000u) {
    // Steps of the format at x, in fractions of 2^-16 as far as fp32 has them: `lost` bits of the mantissa are below a
    // step. It is 13 for normal numbers; the steps of all smaller ones are 2^-24.
    const uint32_t exponent = a >> 23;
    const uint64_t mantissa = exponent == 0 ? a : (a & 0x7FFFFFu) | 0x800000u;
    const uint32_t lost = exponent >= 113 ? 13 : 126 - (exponent == 0 ? 1 : exponent);
    const uint32_t whole = lost < 32 ? static_cast<uint32_t>(mantissa >> lost) : 0;
    const uint64_t rest = mantissa - (static_cast<uint64_t>(whole) << (lost < 32 ? lost : 0));
    // rest / 2^lost * 2^16 > 65535 - random, in whole numbers
    const uint64_t limit = 65535u - random;
    const bool up = lost <= 39 ? (rest << 16) > (limit << lost) : rest > 0 && limit == 0;
    code = exponent >= 113 ? ((exponent - 112) << 10) + (whole - 1024) : whole;
    code += up ? 1 : 0;
    if (code > kLargest) code = kLargest;
  }
  f16_t y;
  y.bits = static_cast<uint16_t>(sign | code);
  return y;
}

}  // namespace nought
