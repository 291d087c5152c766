// PackedTensor: a parameter that a file stores in few bits, read as if it were dense.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "nought/io/packed_matrix.h"
#include "nought/tensor/tensor.h"

namespace nought {

struct PackedTensor {
  Shape shape;  // the parameter has it
  PackedMatrix matrix;
  bool transposed = false;  // the file has matrices [e, out, in], the parameter is [e, in, out]
  /// Where the rows of the parameter lie, if it is not transposed: row i at rows[i], or at first_row + i.
  std::vector<int32_t> rows = {};
  int64_t first_row = 0;
  float offset = 0, factor = 1;  // the file has (x + offset) * factor

  /// Decodes `elements` of the flattened parameter, rising intervals, one behind the other to `destination`, which has
  /// any float dtype. A tile is decoded at a time; intervals that are the same columns of neighbouring rows are one.
  void read(std::span<const Interval> elements, const Tensor& destination) const;

 private:
  struct Rectangle {
    Interval rows, columns;
  };
  /// Elements of a row of the parameter, as it is decoded.
  int64_t width() const { return transposed ? shape[-1] : matrix.columns; }
  std::vector<Rectangle> rectangles(std::span<const Interval> elements) const;
  void decode(Rectangle tile, std::vector<float>& values) const;
  void decode_transposed(Rectangle tile, std::vector<float>& values) const;
};

}  // namespace nought
