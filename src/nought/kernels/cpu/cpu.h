// The CPU backend: one function per operation. oneDNN multiplies matrices, Highway does everything else, compiled for
// each instruction set and chosen at run time. OpenMP splits rows or columns over the calling thread's team.
#pragma once

#include "nought/kernels/kernels.h"

namespace nought::cpu {

#define NOUGHT_DECLARE(Op) void run(const Op& op);
NOUGHT_OPERATIONS(NOUGHT_DECLARE)
#undef NOUGHT_DECLARE

}  // namespace nought::cpu
