#include "nought/kernels/weight.h"

namespace nought {

Shape scales_shape(const Shape& codes) {
  require<ShapeError>(codes.rank() > 0 && codes[-1] % kCodeBlock == 0,
                      "codes of shape {} cannot form blocks: the last dimension must be a multiple of {}", codes,
                      kCodeBlock);
  Shape scales;
  for (int axis = 0; axis + 1 < codes.rank(); ++axis) scales.push_back(codes[axis]);
  scales.push_back(codes[-1] / kCodeBlock);
  return scales;
}

Weight Weight::slice(int64_t begin, int64_t end) const {
  if (!is_quantized()) return values.slice(begin, end);
  return {values.slice(begin, end), scales.slice(begin, end)};
}

Weight Weight::reshape(Shape shape) const {
  if (!is_quantized()) return values.reshape(shape);
  return {values.reshape(shape), scales.reshape(scales_shape(shape))};
}

std::string Weight::str() const {
  return is_quantized() ? fmt::format("{} with scales {}", values, scales) : values.str();
}

}  // namespace nought
