// What the reference loops share: elements of codes, and visiting two dtypes at once.
#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

#include "nought/io/weight_formats.h"
#include "nought/kernels/four_bits.h"
#include "nought/kernels/narrowing.h"
#include "nought/kernels/reference/reference.h"

namespace nought::reference {

/// All elements of a weight of blocks.
inline std::vector<float> decoded_blocks(const Weight& weight) {
  std::vector<float> all(static_cast<size_t>(weight.numel()));
  const std::byte* bytes = weight.values.raw();
  int64_t begin = 0;
  for (const Weight::Band& band : weight.bands()) {
    decode_blocks(*band.format, bytes, (band.end - begin) / band.format->block, all.data() + begin);
    bytes += bytes_of_blocks(*band.format, band.end - begin);
    begin = band.end;
  }
  return all;
}

/// The elements of a weight of codes, seen flat, in the type of sums: exact, and of 4-bit codes and blocks the f32 that
/// they are.
template <class Sum>
class QuantizedValues {
 public:
  explicit QuantizedValues(const Weight& weight) : weight_(weight), table_(four_bit_values(weight.kind())) {
    if (weight.is_blocks()) decoded_ = decoded_blocks(weight);
  }
  Sum operator[](int64_t i) const {
    if (!decoded_.empty()) return static_cast<Sum>(decoded_[static_cast<size_t>(i)]);
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
  std::vector<float> decoded_;  // of blocks, all of them
};

/// Calls f(TypeTag<A>{}, TypeTag<B>{}) with the C++ types of two floating-point dtypes.
template <class F>
void visit_floats(DType a, DType b, F&& f) {
  visit_float(a, [&](auto tag_a) { visit_float(b, [&](auto tag_b) { f(tag_a, tag_b); }); });
}

}  // namespace nought::reference
