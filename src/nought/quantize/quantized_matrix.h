// QuantizedMatrix: a weight [out, in] in codes, with a scale and a zero point for each group of columns of a row.
#pragma once

#include <cstdint>
#include <vector>

#include "nought/base/math.h"
#include "nought/kernels/rounding_grid.h"

namespace nought {

/// How matrices become codes.
struct MatrixRule {
  GridRule grid = {};
  int64_t group_size = 128;  // columns that share a scale; -1: all of a row
  bool square = false;       // so do as many rows
  bool act_order = false;    // columns in the order of their inputs' size (GPTQ's desc_act), groups in that order
  double damping = 0.01;     // added to the moments' diagonal, as a share of its mean

  int64_t group_of(int64_t columns) const { return group_size == -1 ? columns : group_size; }
  int64_t rows_of_scale() const { return square ? group_size : 1; }
};

struct QuantizedMatrix {
  int64_t rows = 0, columns = 0, group_size = 0;
  GridRule rule;
  std::vector<uint8_t> codes;     // [rows, columns]
  std::vector<float> scales;      // [rows, groups]
  std::vector<uint8_t> zeros;     // [rows, groups]
  std::vector<int32_t> group_of;  // the group that each column belongs to

  QuantizedMatrix(int64_t rows, int64_t columns, const MatrixRule& rule);
  int64_t groups() const { return ceil_div(columns, group_size); }
  uint8_t code(int64_t row, int64_t column) const { return codes[static_cast<size_t>(row * columns + column)]; }
  float value(int64_t row, int64_t column) const {
    return grid(row, group_of[static_cast<size_t>(column)]).value_of(code(row, column));
  }
  RoundingGrid grid(int64_t row, int64_t group) const {
    const auto at = static_cast<size_t>(row * groups() + group);
    return {.scale = scales[at], .zero = zeros[at], .last = rule.count() - 1, .codes = rule.codes};
  }
  void set_grid(int64_t row, int64_t group, const RoundingGrid& grid) {
    const auto at = static_cast<size_t>(row * groups() + group);
    scales[at] = grid.scale, zeros[at] = static_cast<uint8_t>(grid.zero);
  }
};

}  // namespace nought
