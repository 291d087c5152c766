#include "nought/kernels/dynamic_code.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace nought {

namespace {

/// The paper's map: the middles of 2^i (signed) or 2^(i + 1) equal parts of [0.1, 1], times 10^(i - 6), for i in 0..6.
std::array<float, 256> make_values(bool is_signed) {
  std::vector<double> values{0.0, 1.0};
  for (int decade = 0; decade < 7; ++decade) {
    const int parts = 1 << (decade + (is_signed ? 0 : 1));
    for (int part = 0; part < parts; ++part) {
      const double middle = std::pow(10.0, decade - 6) * (0.1 + 0.9 * (part + 0.5) / parts);
      values.push_back(middle);
      if (is_signed) values.push_back(-middle);
    }
  }
  std::sort(values.begin(), values.end());
  std::array<float, 256> narrow{};
  std::transform(values.begin(), values.end(), narrow.begin(), [](double value) { return static_cast<float>(value); });
  return narrow;
}

}  // namespace

DynamicCode::DynamicCode(bool is_signed) : values_(make_values(is_signed)), first_(size_t{1} << 16) {
  for (size_t i = 0; i + 1 < values_.size(); ++i)
    upper_[i] = static_cast<float>((double{values_[i]} + double{values_[i + 1]}) / 2);
  upper_[255] = std::numeric_limits<float>::infinity();
  zero_ = static_cast<uint8_t>(std::find(values_.begin(), values_.end(), 0.0f) - values_.begin());
  for (uint32_t bucket = 0; bucket < first_.size(); ++bucket) {
    const bool negative = bucket >> 15 != 0;
    const float lowest = std::bit_cast<float>(bucket << 16 | (negative ? 0xFFFFu : 0u));
    const auto next = std::find_if(upper_.begin(), upper_.end() - 1, [&](float bound) { return lowest < bound; });
    first_[bucket] = static_cast<uint8_t>(next - upper_.begin());
  }
}

const DynamicCode& DynamicCode::of(bool is_signed) {
  static const DynamicCode with_sign(true), without_sign(false);
  return is_signed ? with_sign : without_sign;
}

// The upper 16 bits of a float leave a bucket that holds one bound at most, except around 0: the loop runs once or not.
uint8_t DynamicCode::nearest(float x) const {
  uint8_t code = first_[std::bit_cast<uint32_t>(x) >> 16];
  while (x >= upper_[code] && code < 255) ++code;
  return code == 0 && zero_ == 0 && x > 0 ? 1 : code;
}

}  // namespace nought
