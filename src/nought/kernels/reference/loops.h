// What the reference loops share: elements of codes, and visiting two dtypes at once.
#pragma once

#include <cstdint>
#include <type_traits>

#include "nought/kernels/narrowing.h"
#include "nought/kernels/reference/reference.h"

namespace nought::reference {

/// The elements of a weight of codes, seen flat, in the type of sums: exact.
template <class Sum>
class QuantizedValues {
 public:
  explicit QuantizedValues(const Weight& weight)
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
