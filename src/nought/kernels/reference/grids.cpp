#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "nought/kernels/check.h"
#include "nought/kernels/reference/loops.h"

namespace nought::reference {

namespace {

bool all_finite(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); });
}

/// Rounds what has one scale.
template <class T>
void round_group(const RoundToGrid& op, Interval rows, Interval columns) {
  const int64_t width = op.x.dim(1);
  std::vector<float> values;
  for (int64_t row = rows.begin; row < rows.end; ++row)
    for (int64_t column = columns.begin; column < columns.end; ++column)
      values.push_back(static_cast<float>(op.x.data<T>()[row * width + column]));
  if (all_finite(values)) {
    const RoundingGrid grid = grid_of(values, op.rule());
    for (float& value : values) value = grid.rounded(value);
  } else {
    std::fill(values.begin(), values.end(), std::numeric_limits<float>::quiet_NaN());
  }
  auto from = values.begin();
  for (int64_t row = rows.begin; row < rows.end; ++row)
    for (int64_t column = columns.begin; column < columns.end; ++column)
      op.y.data<T>()[row * width + column] = static_cast<T>(*from++);
}

}  // namespace

void run(const RoundToGrid& op) {
  check(op);
  visit_float(op.x.dtype(), [&](auto tag) {
    const int64_t tall = op.square ? op.group_size : 1;
    for (int64_t row = 0; row < op.x.dim(0); row += tall)
      for (int64_t column = 0; column < op.x.dim(1); column += op.group_size)
        round_group<typename decltype(tag)::type>(op, {row, std::min(row + tall, op.x.dim(0))},
                                                  {column, std::min(column + op.group_size, op.x.dim(1))});
  });
}

void run(const RowRanges& op) {
  check(op);
  visit_float(op.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const int64_t width = op.x.dim(-1);
    for (int64_t row = 0; row < op.x.rows(); ++row) {
      const T* x = op.x.data<T>() + row * width;
      float* range = op.ranges.data<float>() + 2 * row;
      std::vector<float> values;
      for (int64_t i = 0; i < width; ++i) values.push_back(static_cast<float>(x[i]));
      range[0] = range[1] = std::numeric_limits<float>::infinity();
      if (!all_finite(values)) continue;
      const auto [least, greatest] = std::minmax_element(values.begin(), values.end());
      range[0] = width > 0 ? -*least : 0, range[1] = width > 0 ? *greatest : 0;
    }
  });
}

void run(const RoundRows& op) {
  check(op);
  visit_float(op.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const int64_t width = op.x.dim(-1);
    for (int64_t row = 0; row < op.x.rows(); ++row) {
      const float* range = op.ranges.data<float>() + 2 * row;
      const bool finite = std::isfinite(range[0]) && std::isfinite(range[1]);
      const RowSteps steps(op.grid, op.bits, finite ? -range[0] : 0, finite ? range[1] : 0);
      for (int64_t i = row * width; i < (row + 1) * width; ++i)
        op.y.data<T>()[i] = static_cast<T>(finite ? steps.rounded(op.grid, static_cast<float>(op.x.data<T>()[i]))
                                                  : std::numeric_limits<float>::quiet_NaN());
    }
  });
}

void run(const KeepMasked& op) {
  check(op);
  const auto* bits = op.bits.data<uint8_t>();
  visit_float(op.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (int64_t i = 0; i < op.x.numel(); ++i) {
      const int64_t at = op.first + i;
      op.y.data<T>()[i] = (bits[at / 8] >> (at % 8) & 1) != 0 ? op.x.data<T>()[i] : T();
    }
  });
}

}  // namespace nought::reference
