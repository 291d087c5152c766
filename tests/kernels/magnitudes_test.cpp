// Factors of columns, dots of columns, and norms of a matrix and a product of low rank.
#include "nought/kernels/ops/magnitudes.h"

#include "support/kernel_test.h"

namespace nought::magnitudes_test {
namespace {

using namespace test;

class MagnitudesTest : public KernelTest {};

TEST_F(MagnitudesTest, columns_are_scaled_and_added_up_as_by_the_reference) {
  for_each_instruction_set([&] {
    for (const DType dtype : kCpuDTypes)
      for (const int64_t rows : {1, 70})
        for (const int64_t n : {1, 33, 128})
          for (const bool accumulate : {false, true}) {
            const Tensor x = random({rows, n}, dtype, 1), bias = random({n}, dtype, 2), y = random({rows, n}, dtype, 3);
            const Tensor factors = random({n}, DType::f32, 4), divisors = random({n}, DType::f32, 5);
            ScaleColumns scale{.x = x, .factors = factors, .y = y, .bias = bias, .offset = 0.5};
            scale.accumulate = accumulate;
            const ScaleColumns expected{wide(x), wide(factors), wide(y), wide(bias), 0.5, accumulate};
            run(scale), reference::run(expected);
            expect_rounded(y, expected.y, 1e-5);
            const DotColumns dot{x, y, random({n}, DType::f32, 6), divisors};
            const DotColumns expected_dot{wide(x), wide(y), random({n}, DType::f64, 6), wide(divisors)};
            run(dot), reference::run(expected_dot);
            expect_close(dot.out, expected_dot.out, 1e-5, 2e-4);
          }
  });
}

TEST_F(MagnitudesTest, norms_are_those_of_the_sum_that_is_never_formed) {
  constexpr int64_t kOut = 7, kIn = 9, kRank = 3;
  const double scale = 0.75;
  const Tensor w = random({kOut, kIn}, DType::f64, 1), a = random({kRank, kIn}, DType::f64, 2),
               b = random({kOut, kRank}, DType::f64, 3), m = random({kOut}, DType::f64, 4);
  const Tensor squares = random({kOut}, DType::f64, 5), products = random({kRank, kOut}, DType::f64, 5),
               gram = random({kRank, kRank}, DType::f64, 5), norms = clone(squares), factors = clone(squares);
  reference::run(DotRows{.a = w, .b = w, .out = squares});
  reference::run(MatMul{.a = a, .b = w, .c = products, .transpose_b = true});
  reference::run(MatMul{.a = a, .b = a, .c = gram, .transpose_b = true});
  run(LowRankNorms{squares, products, gram, b, m, norms, factors, scale});
  const Tensor sum = random({kOut, kIn}, DType::f64, 6), expected = clone(squares);
  reference::run(MatMul{.a = b, .b = a, .c = sum});
  reference::run(Scale{.x = sum, .factor = scale});
  reference::run(AddTo{.x = w, .into = sum});
  reference::run(DotRows{.a = sum, .b = sum, .out = expected});
  for (int64_t o = 0; o < kOut; ++o) {
    EXPECT_NEAR(norms.data<double>()[o], std::sqrt(expected.data<double>()[o]), 1e-12);
    EXPECT_NEAR(factors.data<double>()[o], m.data<double>()[o] / norms.data<double>()[o], 1e-12);
  }
}

TEST_F(MagnitudesTest, factors_of_another_number_of_columns_are_refused) {
  const Tensor x = random({2, 3}, DType::f32, 1);
  EXPECT_THROW(run(ScaleColumns{.x = x, .factors = random({4}, DType::f32, 1), .y = x}), ShapeError);
  EXPECT_THROW(run(DotColumns{.a = x, .b = x, .out = random({2}, DType::f32, 1)}), ShapeError);
}

}  // namespace
}  // namespace nought::magnitudes_test
