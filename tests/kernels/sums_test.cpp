#include "nought/kernels/ops/sums.h"

#include <limits>

#include "support/kernel_test.h"
#include "support/size.h"

namespace nought::sums_test {
namespace {

using namespace test;

class Sums : public KernelTest {};

NOUGHT_SIZE(medium);
TEST_F(Sums, of_rows_are_exact_sums_rounded_once) {
  for_each_instruction_set([&] {
    for (DType dtype : kCpuDTypes) {
      for (DType out_dtype : {dtype, DType::f32}) {
        for (int64_t rows : {1, 3, 17, 33, 257, 1003}) {
          for (int64_t n : {1, 31, 33}) {
            for (bool accumulate : {false, true}) {
              Tensor x = random({rows, n}, dtype, 1), out = random({n}, out_dtype, 2);
              Tensor expected = converted(*memory_, out, DType::f64);
              reference::run(
                  SumRows{.x = converted(*memory_, x, DType::f64), .out = expected, .accumulate = accumulate});
              run(SumRows{.x = x, .out = out, .accumulate = accumulate});
              expect_rounded(out, expected, 1e-7 * static_cast<double>(rows));
            }
          }
        }
      }
    }
  });
}

NOUGHT_SIZE(medium);
TEST_F(Sums, of_rows_do_not_depend_on_the_number_of_threads) {
  Tensor x = random({3001, 129}, DType::bf16, 1), first;
  for (int threads : {1, 2, 4}) {
    ThreadCount guard(threads);
    Tensor out = empty({129}, DType::f32);
    run(SumRows{.x = x, .out = out});
    if (!first) first = out;
    expect_same_bits(out, first);
  }
}

TEST_F(Sums, of_tensors_add_in_order_and_round_once) {
  for_each_instruction_set([&] {
    for (DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
      for (int64_t n : {1, 7, 33, 1003}) {
        for (uint64_t count : {1, 2, 3, 8}) {
          for (const bool pairwise : {false, true}) {
            std::vector<Tensor> inputs;
            for (uint64_t i = 0; i < count; ++i) inputs.push_back(random({n}, dtype, i));
            Tensor expected = empty({n}, dtype);
            reference::run(SumTensors{.inputs = inputs, .out = expected, .pairwise = pairwise});
            run(SumTensors{.inputs = inputs, .out = inputs.back(), .pairwise = pairwise});
            expect_same_bits(inputs.back(), expected);
          }
        }
      }
    }
  });
}

TEST_F(Sums, of_integer_tensors_are_exact) {
  const std::vector<int64_t> a{1, std::numeric_limits<int64_t>::max() - 5, -7}, b{2, 5, 7};
  Tensor out = empty({3}, DType::i64);
  const std::vector<Tensor> inputs{of(a), of(b)};
  run(SumTensors{.inputs = inputs, .out = out});
  EXPECT_EQ(out.to_vector<int64_t>(), (std::vector<int64_t>{3, std::numeric_limits<int64_t>::max(), 0}));
  EXPECT_THROW(run(SumTensors{.inputs = {}, .out = out}), ShapeError);
}

TEST_F(Sums, of_elements_are_added_in_order_in_f64) {
  for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16})
    for (const int64_t n : {0, 1, 7, 100001}) {
      const Tensor x = random({n}, dtype, 1), out = empty({1}, DType::f64);
      double expected = 0;
      for (const double value : x.to_vector<double>()) expected += value;
      run(SumElements{.x = x, .out = out});
      EXPECT_EQ(out.item(), expected) << n;
    }
}

NOUGHT_SIZE(medium);
TEST_F(Sums, of_squares_are_f64_sums) {
  for_each_instruction_set([&] {
    for (DType dtype : kCpuDTypes) {
      for (int64_t n : {1, 3, 17, 100, 65535, 65536, 200001}) {
        Tensor x = random({n}, dtype, 1), out = empty({1}, DType::f64);
        Tensor expected = clone(out);
        run(SumSquares{.x = x, .out = out});
        reference::run(SumSquares{.x = x, .out = expected});
        expect_close(out, expected, 1e-13, 0);
      }
    }
  });
}

TEST_F(Sums, of_squares_beyond_fp32_do_not_overflow) {
  const std::vector<float> values{1e30f, 2e30f, 3e30f};
  Tensor out = empty({1}, DType::f64);
  run(SumSquares{.x = of(values), .out = out});
  EXPECT_NEAR(out.item(), 14e60, 1e55);
}

NOUGHT_SIZE(medium);
TEST_F(Sums, of_squares_do_not_depend_on_the_number_of_threads) {
  Tensor x = random({500001}, DType::f32, 1), first;
  for (int threads : {1, 2, 4}) {
    ThreadCount guard(threads);
    Tensor out = empty({1}, DType::f64);
    run(SumSquares{.x = x, .out = out});
    if (!first) first = out;
    expect_same_bits(out, first);
  }
}

}  // namespace
}  // namespace nought::sums_test
