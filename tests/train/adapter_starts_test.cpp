// Starts of adapters that are made of the weights: what they are of a matrix, and what is left of it.
#include "nought/weights/adapter_starts.h"

#include <cmath>

#include "support/size.h"
#include <gtest/gtest.h>

#include "nought/tensor/random.h"

namespace nought::adapter_starts_test {
namespace {

NOUGHT_FILE_SIZE(small);

const Context kContext = Context::reference();

Tensor random(int64_t rows, int64_t columns, uint64_t seed) {
  Tensor x = kContext.empty({rows, columns}, DType::f32);
  for (int64_t i = 0; i < x.numel(); ++i)
    x.data<float>()[i] = static_cast<float>(normal_at(seed, static_cast<uint64_t>(i)));
  return x;
}

Tensor product(const Tensor& a, const Tensor& b, bool transpose_a = false, bool transpose_b = false) {
  Tensor c = kContext.empty({a.dim(transpose_a ? 1 : 0), b.dim(transpose_b ? 0 : 1)}, DType::f32);
  kContext.run(MatMul{.a = a, .b = b, .c = c, .transpose_a = transpose_a, .transpose_b = transpose_b});
  return c;
}

double largest(const Tensor& x) {
  double most = 0;
  for (const float value : x.span<float>()) most = std::max(most, std::abs(double{value}));
  return most;
}

/// The weight less scale * B A.
Tensor rest(const Tensor& weight, const StartFactors& start, double scale) {
  const Tensor left = product(start.b, start.a);
  kContext.run(Scale{.x = left, .factor = -scale});
  kContext.run(AddTo{.x = weight, .into = left});
  return left;
}

/// What is left has nothing along the singular vectors that were taken, and no larger singular value.
TEST(AdapterStarts, pissa_takes_the_largest_singular_values) {
  for (const auto& [rows, columns] : {std::pair(12, 9), std::pair(9, 12), std::pair(300, 280)}) {
    const Tensor weight = random(rows, columns, 5), scales = product(random(rows, 3, 1), random(3, columns, 2));
    kContext.run(Scale{.x = scales, .factor = 4});  // three that stand out
    kContext.run(AddTo{.x = scales, .into = weight});
    const StartFactors start = pissa_start(kContext, weight, 3, 0.5, 0);
    EXPECT_EQ(start.a.shape(), (Shape{3, columns}));
    EXPECT_EQ(start.b.shape(), (Shape{rows, 3}));
    const Tensor left = rest(weight, start, 0.5);
    EXPECT_LE(largest(product(start.b, left, true)), 2e-4 * largest(product(start.b, weight, true)));
    EXPECT_LE(largest(product(left, start.a, false, true)), 2e-4 * largest(product(weight, start.a, false, true)));
    const Tensor gram_a = product(start.a, start.a, false, true), gram_b = product(start.b, start.b, true);
    for (int64_t i = 0; i < 9; ++i)
      EXPECT_NEAR(gram_a.data<float>()[i], gram_b.data<float>()[i], 1e-3 * largest(gram_a)) << "diag(S / scale)";
  }
}

TEST(AdapterStarts, iterations_approximate_it) {
  const Tensor weight = product(random(40, 2, 1), random(2, 30, 2));  // of rank 2
  const StartFactors start = pissa_start(kContext, weight, 2, 1, 4);
  EXPECT_LE(largest(rest(weight, start, 1)), 1e-4);
}

TEST(AdapterStarts, olora_is_the_first_of_q_and_r) {
  const Tensor weight = random(10, 7, 3);
  const StartFactors start = olora_start(kContext, weight, 4);
  const Tensor left = rest(weight, start, 1), gram = product(start.b, start.b, true);
  for (int64_t i = 0; i < 10; ++i)
    for (int64_t j = 0; j < 4; ++j) EXPECT_NEAR(left.data<float>()[i * 7 + j], 0, 1e-5) << "the first columns are Q R";
  for (int64_t i = 0; i < 4; ++i)
    for (int64_t j = 0; j < 4; ++j) EXPECT_NEAR(gram.data<float>()[i * 4 + j], i == j ? 1 : 0, 1e-5);
}

TEST(AdapterStarts, orthogonal_factors_have_no_product) {
  const StartFactors start = orthogonal_start(kContext, 12, 10, 4, 7);
  EXPECT_GT(largest(start.a), 0.02);
  EXPECT_GT(largest(start.b), 0.02);
  EXPECT_LE(largest(product(start.b, start.a)), 1e-6);
}

}  // namespace
}  // namespace nought::adapter_starts_test
