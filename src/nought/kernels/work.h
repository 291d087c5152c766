// What operations cost at least: the floating-point operations of products and attentions, and the bytes that every
// operation has to move.
#pragma once

#include "nought/kernels/kernels.h"

namespace nought {

/// Masked halves of attention's products do not count. Bytes are those of each operand, once for reading and once for
/// writing, as if caches held everything else.
struct Work {
  double flops = 0, bytes = 0;

  Work& operator+=(const Work& other) { return flops += other.flops, bytes += other.bytes, *this; }
};

#define NOUGHT_WORK(Op) Work work_of(const Op& op);
NOUGHT_OPERATIONS(NOUGHT_WORK)
#undef NOUGHT_WORK

}  // namespace nought
