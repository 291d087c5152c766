// Measures the rates that this machine's cores cannot exceed. Other figures are given as fractions of these.
//
// On shared machines the speed of a core may change by a factor of two within minutes. So a limit counts for the moment
// in which it was measured. Each call takes a few hundredths of a second on the calling thread's OpenMP team.
#pragma once

#include <string_view>

#include "nought/tensor/dtype.h"

namespace nought {

/// FLOP/s of all threads together in a loop of multiply-adds that never leaves the registers. The loop takes the best
/// path that isa() leaves to products of the dtype: AMX tiles or AVX512-BF16 dot products for bf16, else fp32 FMA of
/// AVX-512 or AVX2. Other 16-bit dtypes are multiplied in fp32. Time is that of the processor: each thread counts
/// as if it had a core of its own.
double measure_matrix_peak(DType dtype);
/// A measured peak, and what it was measured with.
struct MatrixPeakSample {
  double flops = 0;
  int threads = 1;
  double had = 1;  // the part of the time in which threads had a core; the rest went to other programs
};
MatrixPeakSample sample_matrix_peak(DType dtype);
/// The path that measure_matrix_peak() takes: "bf16 tiles on AMX", "fp32 FMA on AVX-512".
std::string_view matrix_peak_name(DType dtype);

/// B/s of all threads together in a[i] = b[i] + s * c[i] over arrays far larger than the caches. The three arrays count
/// once each. Stores are plain ones, so each line of `a` is read before it is written; that read does not count.
double measure_triad();

}  // namespace nought
