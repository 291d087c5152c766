// What operations cost at least: the floating-point operations of products and attentions, and the bytes that every
// operation has to move.
#pragma once

#include "nought/kernels/ops.h"

namespace nought {

/// Masked halves of attention's products do not count. Bytes are those of each operand, once for reading and once for
/// writing, as if caches held everything else.
struct Work {
  double flops = 0, bytes = 0;

  Work& operator+=(const Work& other) { return flops += other.flops, bytes += other.bytes, *this; }
};

/// By what visit() lists, and by flops() where the operation has it.
template <class Op>
Work work_of(const Op& op) {
  Work work;
  for_each_operand(op, [&](const Operand& operand) { work.bytes += operand.bytes_moved(); });
  if constexpr (requires { op.flops(); }) work.flops = op.flops();
  return work;
}

}  // namespace nought
