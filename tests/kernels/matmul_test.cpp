#include "nought/kernels/ops/matmul.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <thread>
#include <vector>

#include "support/kernel_test.h"
#include "support/size.h"

namespace nought::matmul_test {
namespace {

using namespace test;

class MatMulTest : public ::testing::Test {
 protected:
  Tensor random(Shape shape, DType dtype, std::string_view name) const {
    return random_tensor(*memory_, shape, dtype, stable_hash(name));
  }
  /// A product of random tensors; bit 0 of `options` transposes a, bit 1 b, bit 2 accumulates, bit 3 adds a bias.
  MatMul product(int64_t m, int64_t n, int64_t k, DType inputs, DType output, int options = 0) const {
    const bool transpose_a = options & 1, transpose_b = options & 2;
    MatMul op{.a = random(transpose_a ? Shape{k, m} : Shape{m, k}, inputs, "a"),
              .b = random(transpose_b ? Shape{n, k} : Shape{k, n}, inputs, "b"),
              .c = random({m, n}, output, "c"),
              .transpose_a = transpose_a,
              .transpose_b = transpose_b,
              .accumulate = (options & 4) != 0};
    if (options & 8) op.bias = random({n}, inputs, "bias");
    return op;
  }
  /// The product is the f64 product of the same inputs but for the rounding of fp32 sums and of the result.
  void expect_agreement(const MatMul& op, int64_t k) const {
    const auto exact = [&](const Tensor& x) { return x ? converted(*memory_, x, DType::f64) : Tensor(); };
    MatMul oracle{.a = exact(op.a),
                  .b = exact(op.b.values),
                  .c = exact(op.c),
                  .bias = exact(op.bias),
                  .transpose_a = op.transpose_a,
                  .transpose_b = op.transpose_b,
                  .accumulate = op.accumulate};
    reference::run(oracle);
    run(op);
    SCOPED_TRACE(op.a.str() + (op.transpose_a ? "^T x " : " x ") + op.b.values.str() + (op.transpose_b ? "^T" : "") +
                 " -> " + op.c.str() + (op.accumulate ? " accumulated" : "") + (op.bias ? " with bias" : ""));
    // A device's library may round a sum of 16 bits before it adds what is there.
    const bool rounds_twice = tested_choice().is_device && op.accumulate && size_of(op.c.dtype()) == 2;
    double largest = 0;
    if (rounds_twice)
      for (const double value : oracle.c.to_vector<double>()) largest = std::max(largest, std::abs(value));
    expect_rounded(op.c, oracle.c, 4e-7 * static_cast<double>(k + 4) + unit_roundoff(op.c.dtype()) * largest);
  }
  std::shared_ptr<Memory> memory_ = Memory::create();
};

struct Dtypes {
  DType inputs, output;
};
constexpr Dtypes kDtypes[] = {{DType::f32, DType::f32}, {DType::bf16, DType::bf16}, {DType::bf16, DType::f32},
                              {DType::f16, DType::f16}, {DType::f16, DType::f32},   {DType::f64, DType::f64}};
constexpr int64_t kExtents[] = {1, 3, 7, 17, 33, 64, 100, 257};

NOUGHT_SIZE(medium);
TEST_F(MatMulTest, agrees_with_the_exact_product_on_odd_shapes) {
  const ThreadCount guard(1);  // most of these are too small to share
  int options = 0;
  size_t turn = 0;
  for (const int64_t m : kExtents) {
    for (const int64_t n : kExtents) {
      for (const int64_t k : kExtents) {
        if (m * n * k > 257 * 257 * 17) continue;
        for (int repeat = 0; repeat < 2; ++repeat) {
          // 7 and 16, and 5 and 6, share no factor: every dtype meets all options, on all kinds of shapes.
          options = (options + 7) % 16;
          turn = (turn + 5) % std::size(kDtypes);
          expect_agreement(product(m, n, k, kDtypes[turn].inputs, kDtypes[turn].output, options), k);
        }
      }
    }
  }
}

TEST_F(MatMulTest, every_combination_of_options_agrees_with_the_exact_product) {
  for (const auto [inputs, output] : kDtypes) {
    for (int options = 0; options < 16; ++options) expect_agreement(product(37, 50, 29, inputs, output, options), 29);
  }
}

TEST_F(MatMulTest, the_reference_agrees_with_the_exact_product) {
  for (const auto [inputs, output] : kDtypes) {
    const MatMul op = product(5, 6, 7, inputs, output, 12), exact = product(5, 6, 7, DType::f64, DType::f64, 12);
    for (const auto& [from, to] :
         {std::pair{op.a, exact.a}, {op.b.values, exact.b.values}, {op.c, exact.c}, {op.bias, exact.bias}}) {
      reference::run(Cast{.x = from, .y = to});
    }
    reference::run(op);
    reference::run(exact);
    expect_rounded(op.c, exact.c, 1e-5);
  }
}

TEST_F(MatMulTest, higher_ranks_fold_to_rows) {
  MatMul op = product(6, 5, 4, DType::f32, DType::f32);
  run(op);
  MatMul folded{.a = op.a.reshape({2, 3, 4}), .b = op.b, .c = random({2, 3, 5}, DType::f32, "folded")};
  run(folded);
  EXPECT_EQ(folded.c.to_vector<float>(), op.c.to_vector<float>());
}

TEST_F(MatMulTest, a_bf16_sum_is_rounded_once) {
  // 1 + 2^-8 lies between two bf16 values and 2^-8 more reaches the next: rounding the product first would lose both.
  const auto of = [&](Shape shape, std::vector<float> values) {
    const Tensor wide = Tensor::of<float>(*memory_, shape, values);
    Tensor x = Tensor::empty(*memory_, shape, DType::bf16, Category::activations);
    for (size_t i = 0; i < values.size(); ++i) x.data<bf16_t>()[i] = bf16_t(values[i]);
    return x;
  };
  MatMul op{.a = of({1, 2}, {1, 0x1p-8f}), .b = of({2, 1}, {1, 1}), .c = of({1, 1}, {0x1p-8f}), .accumulate = true};
  run(op);
  EXPECT_EQ(op.c.item(), 1 + 0x1p-7);
}

TEST_F(MatMulTest, an_empty_inner_dimension_yields_bias_and_sum) {
  MatMul op{.a = Tensor::empty(*memory_, {2, 0}, DType::f32, Category::activations),
            .b = Tensor::empty(*memory_, {0, 3}, DType::f32, Category::activations),
            .c = random({2, 3}, DType::f32, "c"),
            .bias = random({3}, DType::f32, "bias")};
  run(op);
  for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(op.c.data<float>()[i], op.bias.data<float>()[i % 3]);
  op.accumulate = true;
  run(op);
  for (int64_t i = 0; i < 6; ++i) EXPECT_EQ(op.c.data<float>()[i], 2 * op.bias.data<float>()[i % 3]);
}

TEST_F(MatMulTest, an_empty_output_is_no_work) {
  MatMul op = product(0, 3, 4, DType::bf16, DType::bf16);
  EXPECT_NO_THROW(run(op));
}

TEST_F(MatMulTest, sizes_and_dtypes_that_do_not_fit_are_errors) {
  MatMul op = product(2, 3, 4, DType::f32, DType::f32);
  op.transpose_b = true;
  EXPECT_THROW(run(op), ShapeError);
  EXPECT_THROW(reference::run(op), ShapeError);
  op = product(2, 3, 4, DType::f32, DType::bf16);
  EXPECT_THROW(run(op), ShapeError);
  op = product(2, 3, 4, DType::f32, DType::f32);
  op.bias = random({4}, DType::f32, "bias");
  EXPECT_THROW(run(op), ShapeError);
}

NOUGHT_SIZE(medium);
TEST_F(MatMulTest, the_number_of_threads_changes_no_bit) {
  if (tested_backend() != "cpu") GTEST_SKIP() << "threads of the host do not compute";
  // A long k with few rows or columns is where threads might share sums; the others are cut into blocks of c.
  constexpr std::array<int64_t, 3> kSizes[] = {{64, 96, 2048},  {257, 320, 864}, {16, 16, 4096}, {33, 70, 4096},
                                               {40, 100, 2100}, {1, 512, 768},   {512, 1, 768},  {768, 512, 1},
                                               {1, 40, 5000},   {3, 1, 3001},    {7, 300, 1500}, {1, 1, 4096}};
  constexpr std::array<int, 7> kOptions{0, 1, 2, 3, 5, 11, 14};
  size_t turn = 0;
  for (const auto [inputs, output] : kDtypes) {
    if (inputs == DType::f64) continue;
    for (const auto& [m, n, k] : kSizes) {
      for (int repeat = 0; repeat < 2; ++repeat) {
        const int options = kOptions[turn++ * 3 % kOptions.size()];  // 24 per dtype: all of them
        const MatMul op = product(m, n, k, inputs, output, options);
        std::vector<Tensor> results;
        for (const int threads : {1, 3, 8}) {
          const ThreadCount guard(threads);
          MatMul again = op;
          again.c = cloned(*memory_, op.c);
          run(again);
          results.push_back(again.c);
        }
        SCOPED_TRACE(fmt::format("{} x {}, options {}", op.a.str(), op.b.str(), options));
        for (const Tensor& result : results) expect_same_bits(results[0], result);
      }
    }
  }
}

TEST_F(MatMulTest, rank_threads_multiply_at_the_same_time) {
  if (tested_backend() != "cpu") GTEST_SKIP() << "each rank has a device of its own";
  constexpr int kRanks = 4;
  const MatMul op = product(65, 130, 70, DType::bf16, DType::f32, 2);
  run(op);
  std::vector<Tensor> results(kRanks);
  std::vector<std::thread> ranks;
  for (Tensor& result : results) {
    result = Tensor::empty(*memory_, op.c.shape(), DType::f32, Category::activations);
    ranks.emplace_back([&] {
      MatMul mine = op;
      mine.c = result;
      for (int i = 0; i < 20; ++i) run(mine);
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const Tensor& result : results) expect_same_bits(result, op.c);
}

}  // namespace
}  // namespace nought::matmul_test
