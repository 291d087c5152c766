// What the reference loops share: elements of codes, and visiting two dtypes at once.
#pragma once

#include <cstdint>
#include <type_traits>

#include "nought/kernels/four_bits.h"
#include "nought/kernels/narrowing.h"
#include "nought/kernels/reference/reference.h"

namespace nought::reference {

/// The elements of a weight of codes, seen flat, in the type of sums: exact, and of 4-bit codes the f32 that they are.
template <class Sum>
class QuantizedValues {
 public:
  explicit QuantizedValues(const Weight& weight) : weight_(weight), table_(four_bit_values(weight.kind())) {}
  Sum operator[](int64_t i) const {
    if (weight_.is_four_bits()) {
      const uint8_t both = weight_.values.data<uint8_t>()[i / 2];
      const float scale = weight_.scales.data<float>()[i / kFourBitBlock];
      return static_cast<Sum>(table_[i % 2 == 0 ? both >> 4 : both & 15] * scale);
    }
    return static_cast<Sum>(weight_.values.data<int8_t>()[i]) *
           static_cast<Sum>(float{weight_.scales.data<f16_t>()[i / kCodeBlock]});
  }

 private:
  const Weight& weight_;
  const std::array<float, 16>& table_;
};

/// Calls f(TypeTag<A>{}, TypeTag<B>{}) with the C++ types of two floating-point dtypes.
template <class F>
void visit_floats(DType a, DType b, F&& f) {
  visit_float(a, [&](auto tag_a) { visit_float(b, [&](auto tag_b) { f(tag_a, tag_b); }); });
}

}  // namespace nought::reference
