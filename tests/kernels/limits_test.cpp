#include "nought/kernels/limits.h"

#include <algorithm>
#include <chrono>
#include <map>

#include "support/size.h"
#include <gtest/gtest.h>

#include "nought/kernels/cpu/cpu.h"
#include "nought/kernels/isa.h"

namespace nought::limits_test {
namespace {

/// What a square product reaches of the peak, each at its best of several.
double part_of_peak(DType dtype) {
  constexpr int64_t kSize = 512;
  const auto memory = Memory::create();
  const auto matrix = [&] { return Tensor::zeros(*memory, {kSize, kSize}, dtype, Category::activations); };
  const MatMul product{.a = matrix(), .b = matrix(), .c = matrix()};
  double peak = 0, reached = 0;
  for (int i = 0; i < 6; ++i) {
    peak = std::max(peak, measure_matrix_peak(dtype));
    const auto begin = std::chrono::steady_clock::now();
    cpu::run(product);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    reached = std::max(reached, 2.0 * kSize * kSize * kSize / seconds.count());
  }
  return reached / peak;
}

// The loops count what they compute: a loop that counted twice as much as it does, or ran on narrower vectors than
// products do, would leave this range on any machine.
NOUGHT_SIZE(medium);
TEST(Limits, products_reach_a_good_part_of_the_peak_and_never_much_more) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const double least = isa() == Isa::amx_emulated ? 0.01 : 0.05;
    double part = part_of_peak(dtype);
    for (int i = 0; i < 4 && part <= least; ++i)
      part = std::max(part, part_of_peak(dtype));  // others use the cores too
    EXPECT_GT(part, least) << matrix_peak_name(dtype);
    EXPECT_LT(part, 1.6) << matrix_peak_name(dtype);
  }
}

TEST(Limits, the_peak_is_named_by_the_path_that_products_take) {
  EXPECT_EQ(matrix_peak_name(DType::bf16) == matrix_peak_name(DType::f32),
            !has_bf16_units() || isa() == Isa::amx_emulated);
  EXPECT_EQ(matrix_peak_name(DType::f16), matrix_peak_name(DType::f32));
  const std::map<Isa, std::string_view> expected{{Isa::baseline, "fp32 on SSE"},
                                                 {Isa::avx2, "fp32 FMA on AVX2"},
                                                 {Isa::avx512, "fp32 FMA on AVX-512"},
                                                 {Isa::avx512_bf16, "bf16 dot products on AVX512-BF16"},
                                                 {Isa::amx_emulated, "fp32 FMA on AVX-512"},
                                                 {Isa::amx, "bf16 tiles on AMX"}};
  EXPECT_EQ(matrix_peak_name(DType::bf16), expected.at(isa()));
}

NOUGHT_SIZE(medium);
TEST(Limits, bandwidth_is_a_computers) {
  const double triad = measure_triad();
  EXPECT_GT(triad, 1e8);
  EXPECT_LT(triad, 1e14);
}

}  // namespace
}  // namespace nought::limits_test
