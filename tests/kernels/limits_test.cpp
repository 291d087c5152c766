#include "nought/kernels/limits.h"

#include <gtest/gtest.h>

namespace nought {
namespace {

// Rates differ from machine to machine; what must hold is that something was computed and timed.
TEST(Limits, peaks_and_bandwidth_are_finite_and_of_a_computers_size) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const double peak = measure_matrix_peak(dtype);
    EXPECT_GT(peak, 1e7) << matrix_peak_name(dtype);
    EXPECT_LT(peak, 1e17) << matrix_peak_name(dtype);
  }
  const double triad = measure_triad();
  EXPECT_GT(triad, 1e7);
  EXPECT_LT(triad, 1e15);
}

}  // namespace
}  // namespace nought
