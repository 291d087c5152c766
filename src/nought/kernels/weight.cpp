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
  if (!is_four_bits()) return {values.slice(begin, end), scales.slice(begin, end)};
  Shape rows{end - begin};
  for (int axis = 1; axis < shape_.rank(); ++axis) rows.push_back(shape_[axis]);
  const int64_t row = shape_[0] == 0 ? 0 : shape_.numel() / shape_[0];
  require<ShapeError>(begin * row % kFourBitBlock == 0 && end * row % kFourBitBlock == 0,
                      "rows [{}, {}) of {} are not whole blocks of {}", begin, end, str(), kFourBitBlock);
  return {kind_, rows, values.flat(begin * row / 2, end * row / 2),
          scales.flat(begin * row / kFourBitBlock, end * row / kFourBitBlock)};
}

Weight Weight::reshape(Shape shape) const {
  if (!is_quantized()) return values.reshape(shape);
  if (!is_four_bits()) return {values.reshape(shape), scales.reshape(scales_shape(shape))};
  require<ShapeError>(shape.numel() == numel(), "{} cannot have shape {}", str(), shape);
  return {kind_, shape, values, scales};
}

std::string Weight::str() const {
  if (is_four_bits()) return fmt::format("{}{} with scales {}", name_of(kind_), shape_, scales);
  return is_quantized() ? fmt::format("{} with scales {}", values, scales) : values.str();
}

}  // namespace nought
