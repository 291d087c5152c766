#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "nought/kernels/check.h"
#include "nought/kernels/reference/loops.h"
#include "nought/tensor/random.h"

namespace nought::reference {

void run(const OneBitEncode& op) {
  check(op);
  const float* x = op.x.data<float>();
  float* error = op.error.data<float>();
  auto* bits = op.bits.data<uint8_t>();
  const int64_t n = op.x.numel();
  double squares = 0;
  for (int64_t i = 0; i < n; ++i) {
    error[i] += x[i];
    squares += static_cast<double>(error[i]) * error[i];
  }
  const auto scale = static_cast<float>(std::sqrt(squares / static_cast<double>(n)));
  op.scale.data<float>()[0] = scale;
  std::fill(bits, bits + op.bits.numel(), uint8_t{0});
  for (int64_t i = 0; i < n; ++i) {
    const bool positive = error[i] >= 0;
    if (positive) bits[i / 8] = static_cast<uint8_t>(bits[i / 8] | 1U << (i % 8));
    error[i] -= positive ? scale : -scale;
  }
}

void run(const OneBitDecode& op) {
  check(op);
  const auto* bits = op.bits.data<uint8_t>();
  float* y = op.y.data<float>();
  const auto scale = static_cast<float>(op.factor * static_cast<double>(op.scale.data<float>()[0]));
  for (int64_t i = 0; i < op.y.numel(); ++i) {
    const float value = (bits[i / 8] >> (i % 8) & 1) != 0 ? scale : -scale;
    y[i] = op.accumulate ? y[i] + value : value;
  }
}

void run(const Precondition& op) {
  check(op);
  const float *x = op.x.data<float>(), *second = op.second_moment.data<float>();
  float* y = op.y.data<float>();
  for (int64_t i = 0; i < op.x.numel(); ++i) {
    const double root = std::sqrt(static_cast<double>(second[i])) + op.eps;
    y[i] = second[i] == 0 ? 0.0F : static_cast<float>(op.multiply ? x[i] * root : x[i] / root);
  }
}

void run(const GreatestRatio& op) {
  check(op);
  const float *a = op.a.data<float>(), *b = op.b.data<float>();
  double greatest = 0;
  for (int64_t i = 0; i < op.a.numel(); ++i)
    greatest = std::max(
        greatest, (std::sqrt(static_cast<double>(a[i])) + op.eps) / (std::sqrt(static_cast<double>(b[i])) + op.eps));
  op.out.data<float>()[0] = static_cast<float>(greatest);
}

namespace {

double dot(const std::vector<double>& a, const float* b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

double norm_of(const std::vector<double>& a) {
  double sum = 0;
  for (const double value : a) sum += value * value;
  return std::sqrt(sum);
}

/// Takes out of `row` what lies along the `count` rows of x, which are orthonormal or zero, and scales the rest to
/// length 1. False if the rest is what rounding left.
bool make_orthonormal(std::vector<double>& row, const float* x, int64_t count) {
  constexpr double kNothing = 1e-6;  // of the row's length: f32 rows have no more digits
  const auto n = static_cast<int64_t>(row.size());
  const double before = norm_of(row);
  for (int pass = 0; pass < 2; ++pass)
    for (int64_t i = 0; i < count; ++i) {
      const double along = dot(row, x + i * n);
      for (int64_t j = 0; j < n; ++j) row[static_cast<size_t>(j)] -= along * x[i * n + j];
    }
  const double left = norm_of(row);
  if (!(left > kNothing * before)) return false;
  for (double& value : row) value /= left;
  return true;
}

}  // namespace

void run(const Orthonormalize& op) {
  check(op);
  const int64_t rows = op.x.dim(0), n = op.x.dim(1);
  float* x = op.x.data<float>();
  for (int64_t i = 0; i < rows; ++i) {
    float* const at = x + i * n;
    std::vector<double> row(at, at + n);
    bool found = make_orthonormal(row, x, i);
    if (!found && op.draws && i < n) {
      for (int64_t j = 0; j < n; ++j) row[static_cast<size_t>(j)] = normal_at(op.key, static_cast<uint64_t>(i * n + j));
      found = make_orthonormal(row, x, i);
    }
    for (int64_t j = 0; j < n; ++j) at[j] = found ? static_cast<float>(row[static_cast<size_t>(j)]) : 0.0F;
  }
}

}  // namespace nought::reference
