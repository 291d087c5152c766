// What this machine's cores cannot exceed, measured: the rates that figures are fractions of.
//
// Per-core speed may swing by two over minutes on shared machines, so a limit counts for the moment it was measured in.
// Each call takes a few hundredths of a second on the calling thread's OpenMP team.
#pragma once

#include <string_view>

#include "nought/tensor/dtype.h"

namespace nought {

/// FLOP/s of a loop of multiply-adds that never leaves the registers, of all threads together, on the best path that
/// isa() leaves to products of the dtype: AMX tiles or AVX512-BF16 dot products for bf16, else fp32 FMA of AVX-512 or
/// AVX2. Other 16-bit dtypes are multiplied in fp32.
double measure_matrix_peak(DType dtype);
/// The path: "bf16 tiles on AMX", "fp32 FMA on AVX-512".
std::string_view matrix_peak_name(DType dtype);

/// B/s of a[i] = b[i] + s * c[i] over arrays far larger than the caches, of all threads together; 3 arrays count. The
/// stores are plain ones, so each line of `a` is read before it is written and that read does not count.
double measure_triad();

}  // namespace nought
