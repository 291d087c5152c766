// How formats write what a quantized matrix consists of.
#pragma once

#include <string>
#include <vector>

#include "nought/io/safetensors_writer.h"
#include "nought/quantize/quantized_matrix.h"

namespace nought {

/// Writes all elements of a tensor that was declared with this shape.
template <class T>
void write_values(SafetensorsWriter& writer, Memory& memory, const std::string& name, const Shape& shape,
                  const std::vector<T>& values) {
  writer.write(name, Tensor::of<T>(memory, shape, values, Category::workspace));
}

/// The scales [groups, rows], or [rows, groups].
inline std::vector<f16_t> scales_of(const QuantizedMatrix& matrix, bool by_group) {
  const int64_t groups = matrix.groups();
  std::vector<f16_t> scales(matrix.scales.size());
  for (int64_t row = 0; row < matrix.rows; ++row)
    for (int64_t group = 0; group < groups; ++group)
      scales[static_cast<size_t>(by_group ? group * matrix.rows + row : row * groups + group)] =
          f16_t(matrix.scales[static_cast<size_t>(row * groups + group)]);
  return scales;
}

}  // namespace nought
