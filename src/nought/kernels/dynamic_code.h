// DynamicCode: the 256 values that an 8-bit code may stand for, and the code that is nearest to a value.
//
// These are the dynamic maps of arXiv 2110.02861. Each of the seven decades 10^-6 .. 1 has evenly spaced values, twice
// as many as the decade below; 0 and 1 are values too. The signed map has half as many values and their negatives. So
// small moments keep a relative precision that falls by steps, not an absolute one.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace nought {

class DynamicCode {
 public:
  /// The map of values in [-1, 1] if `is_signed`, else in [0, 1]. It is built once.
  static const DynamicCode& of(bool is_signed);

  /// The values in ascending order.
  const std::array<float, 256>& values() const { return values_; }
  /// The code of the nearest value; if two are equally near, the upper one. |x| <= 1. With the unsigned map, x > 0
  /// never gets the code of 0.
  uint8_t nearest(float x) const;
  uint8_t zero() const { return zero_; }

 private:
  explicit DynamicCode(bool is_signed);

  std::array<float, 256> values_{};
  std::array<float, 256> upper_{};  // From upper_[code] on, the next code is nearer.
  std::vector<uint8_t> first_;      // Indexed by the upper 16 bits of x: the code of the lowest x with these bits.
  uint8_t zero_ = 0;
};

}  // namespace nought
