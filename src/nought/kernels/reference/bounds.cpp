#include "nought/kernels/check.h"
#include "nought/kernels/reference/loops.h"

namespace nought::reference {

void run(const Softcap& op) {
  check(op);
  visit_float(op.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Sum = accumulator_t<T>;
    const Sum cap = static_cast<Sum>(op.cap);
    for (T& x : op.x.span<T>()) x = static_cast<T>(cap * std::tanh(Sum{x} / cap));
  });
}

void run(const SoftcapBackward& op) {
  check(op);
  visit_float(op.y.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Sum = accumulator_t<T>;
    const T* y = op.y.data<T>();
    T* d = op.d.data<T>();
    for (int64_t i = 0; i < op.y.numel(); ++i) {
      const Sum t = Sum{y[i]} / static_cast<Sum>(op.cap);
      d[i] = static_cast<T>(Sum{d[i]} * (1 - t * t));
    }
  });
}

void run(const Clamp& op) {
  check(op);
  visit_float(op.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Real = accumulator_t<T>;
    const Real limit = static_cast<Real>(op.limit);
    const T* x = op.x.data<T>();
    T* y = op.y.data<T>();
    for (int64_t i = 0; i < op.x.numel(); ++i)
      y[i] = std::abs(Real{x[i]}) > limit ? static_cast<T>(std::copysign(limit, Real{x[i]})) : x[i];
  });
}

void run(const ClampBackward& op) {
  check(op);
  visit_float(op.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Real = accumulator_t<T>;
    const T *x = op.x.data<T>(), *dy = op.dy.data<T>();
    T* dx = op.dx.data<T>();
    for (int64_t i = 0; i < op.x.numel(); ++i)
      dx[i] = std::abs(Real{x[i]}) > static_cast<Real>(op.limit) ? static_cast<T>(Real{0}) : dy[i];
  });
}

}  // namespace nought::reference
