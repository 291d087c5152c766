// DynamicCode: the 256 values that an 8-bit code may stand for, and the code that is nearest to a value.
//
// The dynamic maps of arXiv 2110.02861: for each of seven decades 10^-6 .. 1, evenly spaced values whose number doubles
// from decade to decade, and 0 and 1; the signed map mirrors half as many. So small moments keep a relative precision
// that falls by steps, not an absolute one.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace nought {

class DynamicCode {
 public:
  /// The map of values in [-1, 1], or in [0, 1]. Built once.
  static const DynamicCode& of(bool is_signed);

  /// Ascending.
  const std::array<float, 256>& values() const { return values_; }
  /// The code of the nearest value; of two equally near ones the upper. |x| <= 1. With the unsigned map, x > 0 never
  /// gets the code of 0.
  uint8_t nearest(float x) const;
  uint8_t zero() const { return zero_; }

 private:
  explicit DynamicCode(bool is_signed);

  std::array<float, 256> values_{};
  std::array<float, 256> upper_{};  // from here on the next code is nearer
  std::vector<uint8_t> first_;      // by the upper 16 bits of x: the code of the bucket's lowest value
  uint8_t zero_ = 0;
};

}  // namespace nought
