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

/// Random factors, and their exact product: sums[i * n + j].
template <class T>
struct ProductFactors {
  explicit ProductFactors(const MatMulSizes& of)
      : sizes(of),
        a(random_values<T>(of.m * of.k, 1)),
        b(random_values<T>(of.k * of.n, 2)),
        bias(random_values<T>(of.n, 3)),
        before(random_values<T>(of.m * of.n, 4)),
        sums(static_cast<size_t>(of.m * of.n)) {
    const std::vector<double> x(a.begin(), a.end()), y(b.begin(), b.end());
    for (int64_t i = 0; i < of.m; ++i)
      for (int64_t p = 0; p < of.k; ++p) {
        const double left = x[static_cast<size_t>(i * of.k + p)];
        const double* right = y.data() + p * of.n;
        double* out = sums.data() + i * of.n;
        for (int64_t j = 0; j < of.n; ++j) out[j] += left * right[j];
      }
  }

  MatMulSizes sizes;
  std::vector<T> a, b, bias, before;  // a: [m, k], b: [k, n]
  std::vector<double> sums;
};

/// Rows that are longer than they are, as in views into wider tensors, perhaps of the transpose.
template <class T>
struct StoredFactor {
  static constexpr int64_t kGap = 3;

  StoredFactor(const std::vector<T>& from, int64_t rows, int64_t columns, bool transposed)
      : leading((transposed ? rows : columns) + kGap),
        values(static_cast<size_t>((transposed ? columns : rows) * leading), T(1e9f)) {
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j)
        values[static_cast<size_t>(transposed ? j * leading + i : i * leading + j)] =
            from[static_cast<size_t>(i * columns + j)];
  }

  int64_t leading;
  std::vector<T> values;
};

using Multiply = std::function<void(const cpu::Product&)>;

/// All of C, widened. The product may be a corner of that of the factors.
template <class T>
std::vector<float> product_of(const ProductCase& each, const ProductFactors<T>& factors, const Multiply& multiply) {
  const StoredFactor<T> a(factors.a, factors.sizes.m, factors.sizes.k, each.transpose_a);
  const StoredFactor<T> b(factors.b, factors.sizes.k, factors.sizes.n, each.transpose_b);
  std::vector<T> rounded = factors.before;
  std::vector<float> c(factors.before.begin(), factors.before.end());
  multiply({.sizes = each.sizes,
            .a = a.values.data(),
            .b = b.values.data(),
            .bias = each.bias ? factors.bias.data() : nullptr,
            .c = each.output == DType::f32 ? static_cast<void*>(c.data()) : rounded.data(),
            .lda = a.leading,
            .ldb = b.leading,
            .ldc = factors.sizes.n,
            .inputs = dtype_of_v<T>,
            .output = each.output,
            .transpose_a = each.transpose_a,
            .transpose_b = each.transpose_b,
            .accumulate = each.accumulate});
  return each.output == DType::f32 ? c : std::vector<float>(rounded.begin(), rounded.end());
}

template <class T>
void expect_exact_within_rounding(const ProductCase& each, const ProductFactors<T>& factors, const Multiply& multiply) {
  const auto [m, n, k] = each.sizes;
  SCOPED_TRACE(fmt::format("{} x {} x {}, {} to {}, transposed {} {}, accumulate {}, bias {}", m, n, k,
                           name_of(dtype_of_v<T>), name_of(each.output), each.transpose_a, each.transpose_b,
                           each.accumulate, each.bias));
  const std::vector<float> c = product_of(each, factors, multiply);
  const double root = std::sqrt(static_cast<double>(k)), step = unit_roundoff(each.output) * 1.01;
  double worst = 0;
  for (size_t i = 0; i < c.size(); ++i) {
    double exact = factors.sums[i];
    if (each.accumulate) exact += static_cast<double>(factors.before[i]);
    if (each.bias) exact += static_cast<double>(factors.bias[i % static_cast<size_t>(n)]);
    worst = std::max(worst, std::abs(c[i] - exact) / (1e-5 * root + step * std::abs(exact)));
  }
  EXPECT_LE(worst, 1.0);
}

template <class T>
void expect_exact_within_rounding(const ProductCase& each, const Multiply& multiply) {
  expect_exact_within_rounding(each, ProductFactors<T>(each.sizes), multiply);
}

/// Every layout and option of one size.
template <class T>
void expect_every_kind_exact(const MatMulSizes& sizes, const Multiply& multiply) {
  const ProductFactors<T> factors(sizes);
  for (int kind = 0; kind < 16; ++kind)
    expect_exact_within_rounding({.sizes = sizes,
                                  .output = (kind & 1) != 0 ? dtype_of_v<T> : DType::f32,
                                  .transpose_a = (kind & 2) != 0,
                                  .transpose_b = (kind & 4) != 0,
                                  .accumulate = (kind & 8) != 0,
                                  .bias = (kind + sizes.m) % 2 == 0},
                                 factors, multiply);
}

/// Every layout of odd sizes: edges of tiles in each direction, and k around what is packed at a time.
template <class T>
void expect_every_layout_exact(const Multiply& multiply) {
  for (const int64_t m : {1, 7, 16, 33})
    for (const int64_t n : {1, 16, 47, 200})
      for (const int64_t k : {1, 31, 64, 129}) expect_every_kind_exact<T>({m, n, k}, multiply);
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
  const ProductFactors<T> factors({70, 500, 1100});
  for (int layout = 0; layout < 4; ++layout) {
    const ProductCase whole{.sizes = factors.sizes, .transpose_a = (layout & 1) != 0, .transpose_b = (layout & 2) != 0};
    const std::vector<float> c = product_of(whole, factors, multiply);
    ProductCase part = whole;
    part.sizes.m = 21, part.sizes.n = 130;
    const std::vector<float> corner = product_of(part, factors, multiply);
    for (size_t i = 0; i < 21; ++i)
      for (size_t j = 0; j < 130; ++j) ASSERT_EQ(corner[i * 500 + j], c[i * 500 + j]) << i << " " << j;
  }
}

}  // namespace nought::test
