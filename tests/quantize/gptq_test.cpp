#include "nought/quantize/gptq.h"

#include <algorithm>
#include <numeric>
#include <thread>

#include <gtest/gtest.h>

#include "nought/kernels/kernels.h"
#include "nought/quantize/inverse_factor.h"
#include "nought/tensor/random.h"

namespace nought::gptq_test {
namespace {

std::vector<float> random_values(int64_t count, uint64_t seed) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<float>(normal_at(seed, static_cast<uint64_t>(i))));
  return values;
}

const Context& cpu() {
  static const Context context = Context::cpu();
  return context;
}
Tensor matrix(int64_t rows, const std::vector<float>& values) {
  return cpu().upload<float>({rows, std::ssize(values) / rows}, values);
}
std::vector<float> values_of(const Tensor& tensor) { return tensor.to_vector<float>(); }
/// U in the columns' own order.
InverseFactor factor_of(const std::vector<float>& moments, int64_t n, double damping) {
  return gptq_factor(cpu(), matrix(n, moments), {.damping = damping});
}

/// Sums of x x^T over rows whose neighbouring columns go together.
std::vector<float> moments_of(int64_t columns, int64_t rows, uint64_t seed) {
  const std::vector<float> noise = random_values(rows * columns, seed);
  std::vector<float> x(noise.size()), sums(static_cast<size_t>(columns * columns));
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t i = 0; i < columns; ++i) {
      const auto at = static_cast<size_t>(row * columns + i);
      x[at] = noise[at] * static_cast<float>(1 + i % 5) + (i > 0 ? 0.8f * x[at - 1] : 0);
    }
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t i = 0; i < columns; ++i)
      for (int64_t j = 0; j < columns; ++j)
        sums[static_cast<size_t>(i * columns + j)] +=
            x[static_cast<size_t>(row * columns + i)] * x[static_cast<size_t>(row * columns + j)];
  return sums;
}

TEST(InverseFactor, its_square_is_the_inverse) {
  const InverseFactor small = factor_of({2, 1, 1, 2}, 2, 0);
  EXPECT_NEAR(small.at(0, 0), std::sqrt(2.0 / 3), 1e-6);
  EXPECT_NEAR(small.at(0, 1), -std::sqrt(1.0 / 6), 1e-6);
  EXPECT_NEAR(small.at(1, 1), std::sqrt(0.5), 1e-6);

  constexpr int64_t kSize = 300;  // two blocks and a part of one
  const std::vector<float> m = moments_of(kSize, 400, 1);
  const InverseFactor u = factor_of(m, kSize, 0.01);
  double mean = 0, worst = 0;
  for (int64_t i = 0; i < kSize; ++i) mean += m[static_cast<size_t>(i * (kSize + 1))] / double{kSize};
  for (const int64_t i : {int64_t{0}, int64_t{130}, kSize - 1}) {
    std::vector<double> inverse(kSize);  // row i of U^T U
    for (int64_t k = 0; k <= i; ++k)
      for (int64_t j = k; j < kSize; ++j) inverse[static_cast<size_t>(j)] += double{u.at(k, i)} * u.at(k, j);
    for (int64_t j = 0; j < kSize; ++j) {  // times M
      double sum = 0.01 * mean * inverse[static_cast<size_t>(j)];
      for (int64_t k = 0; k < kSize; ++k)
        sum += inverse[static_cast<size_t>(k)] * m[static_cast<size_t>(k * kSize + j)];
      worst = std::max(worst, std::abs(sum - (i == j ? 1 : 0)));
    }
  }
  EXPECT_LE(worst, 1e-3);
}

TEST(InverseFactor, moments_that_are_not_positive_are_refused) {
  EXPECT_THROW(factor_of({1, 3, 3, 1}, 2, 0.01), Error);
  EXPECT_THROW(factor_of({NAN, 0, 0, 1}, 2, 0.01), Error);
}

/// GPTQ as its paper has it first: the inverse is updated after each column, and every later column at once.
std::vector<float> one_by_one(std::vector<float> weights, int64_t columns, const std::vector<float>& moments,
                              const MatrixRule& rule) {
  const auto n = static_cast<size_t>(columns);
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  if (rule.act_order)
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return moments[a * (n + 1)] > moments[b * (n + 1)]; });
  std::vector<double> m(n * n), inverse(n * n);
  double mean = 0;
  for (size_t i = 0; i < n; ++i) mean += moments[i * (n + 1)] / static_cast<double>(n);
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j < n; ++j) m[i * n + j] = moments[order[i] * n + order[j]] + (i == j ? rule.damping * mean : 0);
  for (size_t i = 0; i < n; ++i) inverse[i * (n + 1)] = 1;
  for (size_t i = 0; i < n; ++i) {  // Gauss and Jordan
    const double pivot = m[i * (n + 1)];
    for (size_t j = 0; j < n; ++j) m[i * n + j] /= pivot, inverse[i * n + j] /= pivot;
    for (size_t k = 0; k < n; ++k) {
      const double factor = m[k * n + i];
      for (size_t j = 0; j < n && k != i; ++j)
        m[k * n + j] -= factor * m[i * n + j], inverse[k * n + j] -= factor * inverse[i * n + j];
    }
  }
  std::vector<double> left(n);
  for (size_t i = 0; i < n; ++i) left[i] = weights[order[i]];
  RoundingGrid grid;
  for (size_t i = 0; i < n; ++i) {
    const auto group = static_cast<size_t>(rule.group_of(columns));
    if (i % group == 0)
      grid = grid_of(std::vector<float>(left.begin() + static_cast<ptrdiff_t>(i),
                                        left.begin() + static_cast<ptrdiff_t>(std::min(i + group, n))),
                     rule.grid);
    weights[order[i]] = grid.rounded(static_cast<float>(left[i]));
    const double loss = (left[i] - weights[order[i]]) / inverse[i * (n + 1)];
    for (size_t j = i; j < n; ++j) left[j] -= loss * inverse[i * n + j];
    const std::vector<double> row(inverse.begin() + static_cast<ptrdiff_t>(i * n),
                                  inverse.begin() + static_cast<ptrdiff_t>((i + 1) * n));
    for (size_t j = 0; j < n; ++j)
      for (size_t k = 0; k < n; ++k) inverse[j * n + k] -= row[j] * row[k] / row[i];
  }
  return weights;
}

TEST(Gptq, is_what_columns_one_by_one_give) {
  constexpr int64_t kColumns = 144;  // a block and a part of one
  const std::vector<float> moments = moments_of(kColumns, 300, 2), weights = random_values(kColumns, 3);
  for (const bool act_order : {false, true})
    for (const int64_t group : {int64_t{48}, int64_t{-1}}) {
      const MatrixRule rule{.grid = {.bits = 4, .symmetric = group == -1}, .group_size = group, .act_order = act_order};
      const Tensor values = matrix(1, weights);
      const QuantizedMatrix codes =
          quantize_gptq(cpu(), values, gptq_factor(cpu(), matrix(kColumns, moments), rule), rule);
      const std::vector<float> rounded = values_of(values);
      const std::vector<float> expected = one_by_one(weights, kColumns, moments, rule);
      int64_t other = 0;
      for (int64_t i = 0; i < kColumns; ++i) {
        EXPECT_EQ(codes.value(0, i), rounded[static_cast<size_t>(i)]);
        other += std::abs(rounded[static_cast<size_t>(i)] - expected[static_cast<size_t>(i)]) > 1e-6;
      }
      EXPECT_LE(other, 2) << "what lies between two codes may fall to either in fp32";
    }
}

TEST(Gptq, loses_less_than_the_nearest_code_where_inputs_go_together) {
  constexpr int64_t kRows = 6, kColumns = 160;
  const std::vector<float> moments = moments_of(kColumns, 300, 4), weights = random_values(kRows * kColumns, 5);
  for (const int bits : {2, 3, 4, 8}) {
    const MatrixRule rule{.grid = {.bits = bits}, .group_size = 64};
    const Tensor exact = matrix(kRows, weights), nearest = matrix(kRows, weights), made_up = matrix(kRows, weights),
                 sums = matrix(kColumns, moments);
    round_to_nearest(nearest, rule);
    quantize_gptq(cpu(), made_up, gptq_factor(cpu(), sums, rule), rule);
    EXPECT_LE(relative_error(cpu(), exact, made_up, sums), 0.6 * relative_error(cpu(), exact, nearest, sums)) << bits;
  }
}

TEST(Gptq, inputs_that_are_independent_and_alike_give_the_nearest_codes) {
  constexpr int64_t kRows = 3, kColumns = 40;
  const std::vector<float> weights = random_values(kRows * kColumns, 6);
  std::vector<float> moments(kColumns * kColumns);
  for (int64_t i = 0; i < kColumns; ++i) moments[static_cast<size_t>(i * (kColumns + 1))] = i < 30 ? 2 : 0;
  const Tensor nearest = matrix(kRows, weights), made_up = matrix(kRows, weights);
  const MatrixRule rule{.group_size = 16};
  const QuantizedMatrix expected = round_to_nearest(nearest, rule);
  const QuantizedMatrix codes =
      quantize_gptq(cpu(), made_up, gptq_factor(cpu(), matrix(kColumns, moments), rule), rule);
  EXPECT_EQ(codes.codes, expected.codes) << "columns 30 to 39 had no inputs";
  EXPECT_EQ(codes.scales, expected.scales);
  EXPECT_EQ(values_of(made_up), values_of(nearest));
}

TEST(Gptq, codes_do_not_depend_on_threads) {
  constexpr int64_t kRows = 9, kColumns = 96;
  const std::vector<float> moments = moments_of(kColumns, 200, 7), weights = random_values(kRows * kColumns, 8);
  const auto codes = [&] {
    const MatrixRule rule{.group_size = 32};
    return quantize_gptq(cpu(), matrix(kRows, weights), gptq_factor(cpu(), matrix(kColumns, moments), rule), rule)
        .codes;
  };
  std::vector<uint8_t> of_one;
  std::thread([&] {
    use_one_openmp_thread();
    of_one = codes();
  }).join();
  EXPECT_EQ(codes(), of_one);
}

}  // namespace
}  // namespace nought::gptq_test
