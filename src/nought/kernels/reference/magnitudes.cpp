#include <cmath>

#include "nought/kernels/check.h"
#include "nought/kernels/reference/loops.h"

namespace nought::reference {

void run(const ScaleColumns& op) {
  check(op);
  visit_float(op.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Real = accumulator_t<T>;
    const int64_t n = op.x.dim(-1);
    const T* bias = op.bias ? op.bias.data<T>() : nullptr;
    for (int64_t i = 0; i < op.x.numel(); ++i) {
      const Real factor = op.factors.data<Real>()[i % n] - static_cast<Real>(op.offset);
      Real y = Real{op.x.data<T>()[i]} * factor + (bias != nullptr ? Real{bias[i % n]} : Real{0});
      if (op.accumulate) y += Real{op.y.data<T>()[i]};
      op.y.data<T>()[i] = static_cast<T>(y);
    }
  });
}

void run(const DotColumns& op) {
  check(op);
  visit_float(op.a.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Sum = accumulator_t<T>;
    const int64_t n = op.a.dim(-1);
    for (int64_t j = 0; j < n; ++j) {
      Sum sum = 0;
      for (int64_t i = 0; i < op.a.rows(); ++i) sum += Sum{op.a.data<T>()[i * n + j]} * Sum{op.b.data<T>()[i * n + j]};
      op.out.data<Sum>()[j] = op.divisors ? sum / op.divisors.data<Sum>()[j] : sum;
    }
  });
}

void run(const LowRankNorms& op) {
  check(op);
  visit_float(op.b.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Sum = accumulator_t<T>;
    const int64_t rank = op.b.dim(-1), n = op.b.rows();
    const Sum scale = static_cast<Sum>(op.scale);
    for (int64_t o = 0; o < n; ++o) {
      const T* b = op.b.data<T>() + o * rank;
      Sum mixed = 0, own = 0;
      for (int64_t k = 0; k < rank; ++k) {
        mixed += Sum{b[k]} * op.products.data<Sum>()[k * n + o];
        Sum row = 0;
        for (int64_t l = 0; l < rank; ++l) row += op.gram.data<Sum>()[k * rank + l] * Sum{b[l]};
        own += Sum{b[k]} * row;
      }
      const Sum square = op.squares.data<Sum>()[o] + scale * (2 * mixed + scale * own);
      const Sum norm = square > 0 ? std::sqrt(square) : Sum{1};  // a row of zeros: its result is 0 whatever counts
      op.norms.data<Sum>()[o] = norm;
      op.factors.data<Sum>()[o] = Sum{op.magnitudes.data<T>()[o]} / norm;
    }
  });
}

}  // namespace nought::reference
