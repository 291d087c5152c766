// The CPU backend: one function per operation. Own kernels, vectorised by Highway or written for AVX512-BF16 and AMX,
// compiled for each instruction set and chosen at run time. OpenMP splits rows or columns over the calling thread's
// team.
#pragma once

#include <string_view>

#include "nought/kernels/kernels.h"

namespace nought::cpu {

#define NOUGHT_DECLARE(Op) void run(const Op& op);
NOUGHT_OPERATIONS(NOUGHT_DECLARE)
#undef NOUGHT_DECLARE

/// MatMul by rounded inputs, where there is such a kernel for its b (rounded_products.h), else run().
void run_rounded(const MatMul& op);

/// What multiplies large bf16 matrices on this machine, in words. ConfigError if NOUGHT_ISA is wrong (isa.h).
std::string_view bf16_products();

}  // namespace nought::cpu
