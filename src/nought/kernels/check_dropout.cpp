#include "nought/kernels/check.h"

namespace nought {

void check_shapes(const Dropout& op) {
  require<ShapeError>(is_float(op.x.dtype()) && op.x.rank() >= 1, "Dropout: x is {}, expected rows of a float dtype",
                      op.x);
  require<ShapeError>(op.y.dtype() == op.x.dtype() && op.y.numel() == op.x.numel(), "Dropout: y is {}, and x is {}",
                      op.y, op.x);
  require<ShapeError>(op.rows.dtype() == DType::i64 && op.rows.numel() == op.x.rows(),
                      "Dropout: rows is {}, expected i64 for each row of x, which is {}", op.rows, op.x);
  require<ShapeError>(op.probability >= 0 && op.probability < 1 && op.first_column >= 0,
                      "Dropout: probability {} is not in [0, 1), or the first column {} is negative", op.probability,
                      op.first_column);
}

}  // namespace nought
