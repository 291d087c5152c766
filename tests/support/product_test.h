// Products as kernels under the operation get them: operands in rows that are longer than they are, beside exact ones.
#pragma once

#include <cmath>
#include <functional>
#include <vector>

#include "support/kernel_test.h"
#include <gtest/gtest.h>

#include "nought/kernels/cpu/gemm.h"

namespace nought::test {

struct ProductCase {
  MatMulSizes sizes;
  DType output = DType::f32;
  bool transpose_a = false, transpose_b = false, accumulate = false, bias = false;
};

/// The operands lie in rows that are longer than they are, as views into wider tensors do.
template <class T>
struct ProductOperands {
  static constexpr int64_t kGap = 3;

  explicit ProductOperands(const ProductCase& each)
      : lda((each.transpose_a ? each.sizes.m : each.sizes.k) + kGap),
        ldb((each.transpose_b ? each.sizes.k : each.sizes.n) + kGap),
        a(random_values<T>((each.transpose_a ? each.sizes.k : each.sizes.m) * lda, 1)),
        b(random_values<T>((each.transpose_b ? each.sizes.n : each.sizes.k) * ldb, 2)),
        bias(random_values<T>(each.sizes.n, 3)),
        before(random_values<T>(each.sizes.m * each.sizes.n, 4)) {}

  int64_t lda, ldb;
  std::vector<T> a, b, bias, before;
};

using Multiply = std::function<void(const cpu::Product&)>;

/// All of C, widened.
template <class T>
std::vector<float> product_of(const ProductCase& each, const ProductOperands<T>& operands, const Multiply& multiply) {
  std::vector<T> rounded = operands.before;
  std::vector<float> c(operands.before.begin(), operands.before.end());
  multiply({.sizes = each.sizes,
            .a = operands.a.data(),
            .b = operands.b.data(),
            .bias = each.bias ? operands.bias.data() : nullptr,
            .c = each.output == DType::f32 ? static_cast<void*>(c.data()) : rounded.data(),
            .lda = operands.lda,
            .ldb = operands.ldb,
            .ldc = each.sizes.n,
            .inputs = dtype_of_v<T>,
            .output = each.output,
            .transpose_a = each.transpose_a,
            .transpose_b = each.transpose_b,
            .accumulate = each.accumulate});
  return each.output == DType::f32 ? c : std::vector<float>(rounded.begin(), rounded.end());
}

template <class T>
double exact_element(const ProductCase& each, const ProductOperands<T>& operands, int64_t i, int64_t j) {
  double sum = each.accumulate ? operands.before[static_cast<size_t>(i * each.sizes.n + j)] : 0.0;
  if (each.bias) sum += operands.bias[static_cast<size_t>(j)];
  for (int64_t p = 0; p < each.sizes.k; ++p) {
    const int64_t a = each.transpose_a ? p * operands.lda + i : i * operands.lda + p;
    const int64_t b = each.transpose_b ? j * operands.ldb + p : p * operands.ldb + j;
    sum += static_cast<double>(operands.a[static_cast<size_t>(a)]) * operands.b[static_cast<size_t>(b)];
  }
  return sum;
}

template <class T>
void expect_exact_within_rounding(const ProductCase& each, const Multiply& multiply) {
  SCOPED_TRACE(fmt::format("{} x {} x {}, {} to {}, transposed {} {}, accumulate {}, bias {}", each.sizes.m,
                           each.sizes.n, each.sizes.k, name_of(dtype_of_v<T>), name_of(each.output), each.transpose_a,
                           each.transpose_b, each.accumulate, each.bias));
  const ProductOperands<T> operands(each);
  const std::vector<float> c = product_of(each, operands, multiply);
  const double root = std::sqrt(static_cast<double>(each.sizes.k)), step = unit_roundoff(each.output) * 1.01;
  double worst = 0;
  for (int64_t i = 0; i < each.sizes.m; ++i)
    for (int64_t j = 0; j < each.sizes.n; ++j) {
      const double exact = exact_element(each, operands, i, j);
      const double error = std::abs(c[static_cast<size_t>(i * each.sizes.n + j)] - exact);
      worst = std::max(worst, error / (1e-5 * root + step * std::abs(exact)));
    }
  EXPECT_LE(worst, 1.0);
}

/// Every layout of odd sizes: edges of tiles in each direction, and k around what is packed at a time.
template <class T>
void expect_every_layout_exact(const Multiply& multiply) {
  for (const int64_t m : {1, 7, 16, 33})
    for (const int64_t n : {1, 16, 47, 200})
      for (const int64_t k : {1, 31, 64, 129})
        for (int kind = 0; kind < 16; ++kind)
          expect_exact_within_rounding<T>({.sizes = {m, n, k},
                                           .output = (kind & 1) != 0 ? dtype_of_v<T> : DType::f32,
                                           .transpose_a = (kind & 2) != 0,
                                           .transpose_b = (kind & 4) != 0,
                                           .accumulate = (kind & 8) != 0,
                                           .bias = (kind + m) % 2 == 0},
                                          multiply);
}

template <class T>
void expect_large_ones_exact(const Multiply& multiply) {
  for (const bool transposed : {false, true})
    for (const DType output : {DType::f32, dtype_of_v<T>}) {
      expect_exact_within_rounding<T>(
          {.sizes = {19, 50, 2051}, .output = output, .transpose_a = transposed, .bias = true}, multiply);
      expect_exact_within_rounding<T>(
          {.sizes = {19, 50, 1031}, .output = output, .transpose_a = transposed, .accumulate = true}, multiply);
      expect_exact_within_rounding<T>({.sizes = {530, 400, 34}, .output = output, .transpose_b = transposed}, multiply);
    }
}

/// An element has the same bits in a product of any size.
template <class T>
void expect_same_bits_in_any_company(const Multiply& multiply) {
  for (int layout = 0; layout < 4; ++layout) {
    const ProductCase whole{
        .sizes = {600, 500, 1100}, .transpose_a = (layout & 1) != 0, .transpose_b = (layout & 2) != 0};
    const ProductOperands<T> operands(whole);
    const std::vector<float> c = product_of(whole, operands, multiply);
    ProductCase part = whole;
    part.sizes.m = 21, part.sizes.n = 130;
    // The leading dimensions stay those of the whole.
    const std::vector<float> corner = product_of(part, operands, multiply);
    for (int64_t i = 0; i < part.sizes.m; ++i)
      for (int64_t j = 0; j < part.sizes.n; ++j)
        ASSERT_EQ(corner[static_cast<size_t>(i * part.sizes.n + j)], c[static_cast<size_t>(i * whole.sizes.n + j)]);
  }
}

}  // namespace nought::test
