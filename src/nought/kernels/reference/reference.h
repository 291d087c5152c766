// The reference of every operation: one function each, plain loops over every float dtype. It says what the operation
// means, serves f64, and is what every other backend is tested against.
#pragma once

#include "nought/kernels/kernels.h"

namespace nought::reference {

#define NOUGHT_DECLARE(Op) void run(const Op& op);
NOUGHT_OPERATIONS(NOUGHT_DECLARE)
#undef NOUGHT_DECLARE

}  // namespace nought::reference
