// Tables of polynomials that approximate a smooth function of t >= 0 piece by piece, computed by the compiler.
//
// Design goals: one lookup is a permutation of registers, so a table has as many pieces as a vector register or two
// have lanes, and the index of a piece is the last bits of a sum. Non-goals: a small relative error where the function
// is below 1e-6.
#pragma once

#include <numbers>

namespace nought::cpu {

/// Polynomials of degree kDegree in t - origin, one for each of kPieces intervals around the multiples of `width`.
template <int kPieces, int kOfDegree>
struct Piecewise {
  static constexpr int kDegree = kOfDegree;
  alignas(64) float coefficient[kDegree + 1][kPieces];
  float pieces_per_unit, limit;  // 1 / width; the largest t that a piece covers
  float origin;                  // wide pieces lie around it, as large powers of t would cancel
};

namespace compile_time {

constexpr double exp(double x) {
  const auto n = static_cast<int>(x * std::numbers::log2e + (x < 0 ? -0.5 : 0.5));
  const double r = x - n * std::numbers::ln2;
  double term = 1, sum = 1;
  for (int k = 1; k < 24; ++k) sum += term *= r / k;
  for (int k = 0; k < (n < 0 ? -n : n); ++k) sum *= n < 0 ? 0.5 : 2;
  return sum;
}

constexpr double cos(double x) {
  double term = 1, sum = 1;
  for (int k = 1; k < 20; ++k) sum += term *= -x * x / (2 * k * (2 * k - 1));
  return sum;
}

/// The polynomial in t - origin that interpolates f at the Chebyshev nodes of [begin, end].
template <int kDegree, class F>
constexpr void interpolate(const F& f, double begin, double end, double origin, double (&coefficient)[kDegree + 1]) {
  double node[kDegree + 1] = {}, divided[kDegree + 1] = {};
  for (int k = 0; k <= kDegree; ++k) {
    node[k] = (begin + end) / 2 + (end - begin) / 2 * cos(std::numbers::pi * (2 * k + 1) / (2 * kDegree + 2));
    divided[k] = f(node[k]);
    node[k] -= origin;
  }
  for (int j = 1; j <= kDegree; ++j) {
    for (int i = kDegree; i >= j; --i) divided[i] = (divided[i] - divided[i - 1]) / (node[i] - node[i - j]);
  }
  // Newton's form, multiplied out from its innermost factor.
  for (double& c : coefficient) c = 0;
  for (int i = kDegree; i >= 0; --i) {
    for (int k = kDegree; k > 0; --k) coefficient[k] = coefficient[k - 1] - node[i] * coefficient[k];
    coefficient[0] = divided[i] - node[i] * coefficient[0];
  }
}

/// `f` over [0, limit].
template <int kPieces, int kDegree, class F>
constexpr Piecewise<kPieces, kDegree> tabulate(const F& f, double limit) {
  Piecewise<kPieces, kDegree> table{};
  const double width = limit / (kPieces - 0.51);  // a t of `limit` still rounds to the last piece
  const double origin = kPieces < 16 ? limit * 3 / 8 : 0;
  table.pieces_per_unit = static_cast<float>(1 / width), table.limit = static_cast<float>(limit);
  table.origin = static_cast<float>(origin);
  for (int piece = 0; piece < kPieces; ++piece) {
    double coefficient[kDegree + 1] = {};
    interpolate<kDegree>(f, piece == 0 ? 0 : (piece - 0.5) * width, (piece + 0.5) * width, origin, coefficient);
    for (int k = 0; k <= kDegree; ++k) table.coefficient[k][piece] = static_cast<float>(coefficient[k]);
  }
  return table;
}

}  // namespace compile_time

/// x * cdf(x), cdf that of the standard normal distribution.
struct GeluErfTail {
  /// cdf(-t): by a series without cancellation, or where it is small by a continued fraction.
  static constexpr double value(double t) {
    if (t < 3) {
      double term = t, sum = t;
      for (int k = 3; k < 120; k += 2) sum += term *= t * t / k;
      return 0.5 - density(t) * sum;
    }
    double fraction = t;
    for (int k = 80; k > 0; --k) fraction = t + k / fraction;
    return density(t) / fraction;
  }
  /// The derivative of x * cdf(x) at -t.
  static constexpr double slope(double t) { return value(t) - t * density(t); }

 private:
  static constexpr double density(double t) {
    return compile_time::exp(-t * t / 2) * std::numbers::inv_sqrtpi / std::numbers::sqrt2;
  }
};

/// x * sigmoid(2 sqrt(2/pi) (x + 0.044715 x^3)).
struct GeluTanhTail {
  static constexpr double kLinear = 2 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi, kCubic = 0.044715 * kLinear;

  /// The sigmoid at x = -t.
  static constexpr double value(double t) { return 1 / (1 + compile_time::exp(t * (kLinear + kCubic * t * t))); }
  static constexpr double slope(double t) {
    const double gate = value(t);
    return gate - t * gate * (1 - gate) * (kLinear + 3 * kCubic * t * t);
  }
};

}  // namespace nought::cpu
