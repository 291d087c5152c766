// What the reference loops share: one rounding from any float to any other, elements of codes, and visiting two dtypes
// at once.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "nought/kernels/reference/reference.h"

namespace nought::reference {

/// `value` rounded to To once. A double on its way to 16 bits passes through fp32 rounded to odd: the lost bits stay
/// visible in the last one, so that the second rounding sees on which side of its midpoint the value lies.
template <class To, class From>
To rounded(From value) {
  if constexpr (std::is_same_v<From, double> && sizeof(To) == 2) {
    float narrow = static_cast<float>(value);
    const double kept = static_cast<double>(narrow);
    if (std::isfinite(narrow) && kept != value) {
      if (std::abs(kept) > std::abs(value)) narrow = std::nextafter(narrow, 0.0f);
      narrow = std::bit_cast<float>(std::bit_cast<uint32_t>(narrow) | 1u);
    }
    return static_cast<To>(narrow);
  } else {
    return static_cast<To>(value);
  }
}

/// The elements of a weight of codes, seen flat, in the type of sums: exact.
template <class Sum>
class CodedValues {
 public:
  explicit CodedValues(const Weight& weight)
      : codes_(weight.values.data<int8_t>()), scales_(weight.scales.data<f16_t>()) {}
  Sum operator[](int64_t i) const {
    return static_cast<Sum>(codes_[i]) * static_cast<Sum>(float{scales_[i / kCodeBlock]});
  }

 private:
  const int8_t* codes_;
  const f16_t* scales_;
};

/// Calls f(TypeTag<A>{}, TypeTag<B>{}) with the C++ types of two floating-point dtypes.
template <class F>
void visit_floats(DType a, DType b, F&& f) {
  visit_float(a, [&](auto tag_a) { visit_float(b, [&](auto tag_b) { f(tag_a, tag_b); }); });
}

}  // namespace nought::reference
