// Checks of the operations that put values on the grids of few bits.
#include "nought/kernels/check.h"
#include "nought/kernels/check_argument.h"

namespace nought {

void check_shapes(const RoundToGrid& op) {
  check_float({"RoundToGrid", "x", op.x});
  check_like({"RoundToGrid", "y", op.y}, op.x);
  require<ShapeError>(op.x.rank() == 2, "RoundToGrid: x is {}, expected [rows, columns]", op.x);
  require(op.group_size > 0 && 2 <= op.bits && op.bits <= 8, "RoundToGrid: groups of {} in {} bits, expected 2 to 8",
          op.group_size, op.bits);
}

void check_shapes(const RowRanges& op) {
  check_float({"RowRanges", "x", op.x});
  check_tensor({"RowRanges", "ranges", op.ranges}, DType::f32, 2 * op.x.rows());
}

void check_shapes(const RoundRows& op) {
  check_float({"RoundRows", "x", op.x});
  check_like({"RoundRows", "y", op.y}, op.x);
  check_tensor({"RoundRows", "ranges", op.ranges}, DType::f32, 2 * op.x.rows());
  require(2 <= op.bits && op.bits <= 8, "RoundRows: {} bits, expected 2 to 8", op.bits);
}

void check_shapes(const KeepMasked& op) {
  check_float({"KeepMasked", "x", op.x});
  check_like({"KeepMasked", "y", op.y}, op.x);
  check_dtype({"KeepMasked", "bits", op.bits}, DType::u8);
  require<ShapeError>(op.first >= 0 && op.first + op.x.numel() <= 8 * op.bits.numel(),
                      "KeepMasked: bits are {}, too few for {} from {} on", op.bits, op.x, op.first);
}

}  // namespace nought
