#include <numbers>

#include "nought/kernels/check.h"
#include "nought/kernels/reference/loops.h"

namespace nought::reference {
namespace {

/// activation(x) and its derivative.
template <class Real>
struct ValueAndSlope {
  Real value, slope;
};

template <class Real>
Real sigmoid(Real x) {
  return 1 / (1 + std::exp(-x));
}

/// x * cdf(x) of the standard normal distribution (arXiv 1606.08415).
template <class Real>
ValueAndSlope<Real> gelu_erf(Real x) {
  const Real cdf = std::erfc(-x / std::numbers::sqrt2_v<Real>) / 2;
  const Real density = std::exp(-x * x / 2) * std::numbers::inv_sqrtpi_v<Real> / std::numbers::sqrt2_v<Real>;
  return {x * cdf, cdf + x * density};
}

/// x/2 * (1 + tanh(u)), u = sqrt(2/pi) * (x + 0.044715 x^3); (1 + tanh(u)) / 2 is sigmoid(2u).
template <class Real>
ValueAndSlope<Real> gelu_tanh(Real x) {
  const Real twice = 2 * std::numbers::sqrt2_v<Real> * std::numbers::inv_sqrtpi_v<Real>;
  const Real cubic = Real(0.044715);
  const Real gate = sigmoid(twice * (x + cubic * x * x * x));
  return {x * gate, gate + x * gate * (1 - gate) * twice * (1 + 3 * cubic * x * x)};
}

template <class Real>
ValueAndSlope<Real> silu(Real x) {
  const Real gate = sigmoid(x);
  return {x * gate, gate * (1 + x * (1 - gate))};
}

/// 0 has the slope 0; NaN stays NaN.
template <class Real>
ValueAndSlope<Real> relu(Real x) {
  if (x <= 0) return {0, 0};
  return {x, x > 0 ? Real(1) : x};
}

template <class Real>
ValueAndSlope<Real> activate(Activation activation, Real x) {
  switch (activation) {
    case Activation::gelu_erf:
      return gelu_erf(x);
    case Activation::gelu_tanh:
      return gelu_tanh(x);
    case Activation::silu:
      return silu(x);
    case Activation::relu:
      return relu(x);
  }
  fail("unknown activation {}", static_cast<int>(activation));
}

}  // namespace

void run(const Activate& op) {
  check(op);
  visit_float(op.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* x = op.x.data<T>();
    T* y = op.y.data<T>();
    for (int64_t i = 0; i < op.x.numel(); ++i) {
      y[i] = static_cast<T>(activate(op.activation, accumulator_t<T>{x[i]}).value);
    }
  });
}

void run(const ActivateBackward& op) {
  check(op);
  visit_float(op.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Real = accumulator_t<T>;
    const T *x = op.x.data<T>(), *dy = op.dy.data<T>();
    T* dx = op.dx.data<T>();
    for (int64_t i = 0; i < op.x.numel(); ++i) {
      dx[i] = static_cast<T>(Real{dy[i]} * activate(op.activation, Real{x[i]}).slope);
    }
  });
}

void run(const GatedActivate& op) {
  check(op);
  visit_float(op.y.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Real = accumulator_t<T>;
    const int64_t n = op.gate_up.dim(-1) / 2;
    for (int64_t row = 0; row < op.gate_up.rows(); ++row) {
      const T *gate = op.gate_up.data<T>() + row * 2 * n, *up = gate + n;
      T* y = op.y.data<T>() + row * n;
      for (int64_t j = 0; j < n; ++j) {
        y[j] = static_cast<T>(activate(op.activation, Real{gate[j]}).value * Real{up[j]});
      }
    }
  });
}

void run(const GatedActivateBackward& op) {
  check(op);
  visit_float(op.dy.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Real = accumulator_t<T>;
    const int64_t n = op.gate_up.dim(-1) / 2;
    for (int64_t row = 0; row < op.gate_up.rows(); ++row) {
      const T *gate = op.gate_up.data<T>() + row * 2 * n, *up = gate + n;
      const T* dy = op.dy.data<T>() + row * n;
      T *d_gate = op.d_gate_up.data<T>() + row * 2 * n, *d_up = d_gate + n;
      for (int64_t j = 0; j < n; ++j) {
        const Real upstream{dy[j]}, factor{up[j]};  // read before written: d_gate_up may be gate_up
        const auto [value, slope] = activate(op.activation, Real{gate[j]});
        d_gate[j] = static_cast<T>(upstream * factor * slope);
        d_up[j] = static_cast<T>(upstream * value);
      }
    }
  });
}

}  // namespace nought::reference
