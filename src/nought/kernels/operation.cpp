#include "nought/kernels/operation.h"

namespace nought {

int64_t Operand::elements() const {
  if (!tensor.defined()) return 0;
  if (rows) return rows->count * rows->used;
  return use.rows >= 0 ? use.rows * tensor.dim(-1) : tensor.numel();
}

double Operand::bytes_moved() const {
  const int times = use.role == Role::in_out || use.role == Role::scratch ? 2 : 1;
  return static_cast<double>(times * elements() * size_of(tensor.dtype()));
}

}  // namespace nought
