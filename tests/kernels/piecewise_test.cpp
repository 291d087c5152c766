#include "nought/kernels/cpu/piecewise.h"

#include <cmath>

#include <gtest/gtest.h>

namespace nought::cpu::piecewise_test {
namespace {

/// The table's value at t in f64, from the piece that a lookup takes.
template <int kPieces, int kDegree>
double value_at(const Piecewise<kPieces, kDegree>& table, double t) {
  const auto piece = static_cast<int>(std::nearbyint(t * double{table.pieces_per_unit}));
  EXPECT_GE(piece, 0);
  EXPECT_LT(piece, kPieces);
  double value = 0;
  for (int k = kDegree; k >= 0; --k) value = value * (t - double{table.origin}) + double{table.coefficient[k][piece]};
  return value;
}

/// The largest difference between the table and f over [0, limit].
template <int kPieces, int kDegree, class F>
double largest_error(const Piecewise<kPieces, kDegree>& table, const F& f) {
  double worst = 0;
  for (double t = 0; t <= double{table.limit}; t += 0.0007)
    worst = std::max(worst, std::abs(value_at(table, t) - f(t)));
  return std::max(worst, std::abs(value_at(table, double{table.limit}) - f(double{table.limit})));
}

double density(double t) { return std::exp(-t * t / 2) / std::sqrt(2 * std::numbers::pi); }

TEST(Piecewise, the_compilers_functions_are_those_of_the_library) {
  for (double x = -30; x < 30; x += 0.137) {
    EXPECT_NEAR(compile_time::exp(x), std::exp(x), 1e-13 * std::exp(x));
  }
  for (double x = -4; x < 4; x += 0.137) EXPECT_NEAR(compile_time::cos(x), std::cos(x), 1e-14);
}

TEST(Piecewise, tails_of_gelu_are_exact) {
  constexpr double kRoot = 2 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
  for (double t = 0; t < 8; t += 0.0137) {
    const double cdf = std::erfc(t / std::numbers::sqrt2) / 2;
    EXPECT_NEAR(GeluErfTail::value(t), cdf, 1e-12 * cdf);
    EXPECT_NEAR(GeluErfTail::slope(t), cdf - t * density(t), 1e-13);
    const double gate = (1 - std::tanh(kRoot / 2 * (t + 0.044715 * t * t * t))) / 2, h = 1e-5;
    EXPECT_NEAR(GeluTanhTail::value(t), gate, 1e-15);
    const auto x_gate = [](double x) { return x * GeluTanhTail::value(-x); };
    EXPECT_NEAR(GeluTanhTail::slope(t), (x_gate(-t + h) - x_gate(-t - h)) / (2 * h), 1e-9);
  }
}

TEST(Piecewise, tables_follow_their_functions_up_to_the_limit) {
  EXPECT_LT(largest_error(compile_time::tabulate<32, 3>(GeluErfTail::value, 7.87), GeluErfTail::value), 1e-6);
  EXPECT_LT(largest_error(compile_time::tabulate<8, 5>(GeluErfTail::value, 5.5), GeluErfTail::value), 4e-7);
  EXPECT_LT(largest_error(compile_time::tabulate<32, 4>(GeluTanhTail::slope, 7.87), GeluTanhTail::slope), 1e-6);
  EXPECT_LT(largest_error(compile_time::tabulate<8, 6>(GeluTanhTail::slope, 5.5), GeluTanhTail::slope), 5e-7);
}

TEST(Piecewise, a_polynomial_of_the_degree_is_met) {
  const auto cubic = [](double t) { return 1 - 2 * t + 0.5 * t * t - 0.25 * t * t * t; };
  EXPECT_LT(largest_error(compile_time::tabulate<8, 3>(cubic, 4), cubic), 2e-6);  // coefficients are fp32
}

}  // namespace
}  // namespace nought::cpu::piecewise_test
