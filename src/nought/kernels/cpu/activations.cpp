#include "nought/kernels/check.h"
#include "nought/kernels/cpu/cpu.h"
#include "nought/kernels/cpu/parallel.h"
#include "nought/kernels/cpu/targets.h"
#include "nought/kernels/reference/reference.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nought/kernels/cpu/activations.cpp"
#include <hwy/foreach_target.h>

#include "nought/kernels/cpu/math-inl.h"
#include "nought/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nought::cpu::HWY_NAMESPACE {

/// activation(x) and its derivative; the compiler drops the one that is not used.
template <class V>
struct ValueAndSlope {
  V value, slope;
};

template <class D, class V>
HWY_INLINE ValueAndSlope<V> gelu_erf(D d, V x) {
  const auto [cdf, density] = normal(d, x);
  return {hn::Mul(x, cdf), hn::MulAdd(x, density, cdf)};
}

/// x * sigmoid(2u), u = sqrt(2/pi) * (x + 0.044715 x^3), which is x/2 * (1 + tanh(u)).
template <class D, class V>
HWY_INLINE ValueAndSlope<V> gelu_tanh(D d, V x) {
  constexpr float kTwice = 2 * std::numbers::sqrt2_v<float> * std::numbers::inv_sqrtpi_v<float>;
  const V one = hn::Set(d, 1.0f), linear = hn::Set(d, kTwice), cubic = hn::Set(d, 0.044715f * kTwice);
  const V square = hn::Mul(x, x);
  const V gate = sigmoid(d, hn::Mul(x, hn::MulAdd(square, cubic, linear)));
  const V value = hn::Mul(x, gate);
  const V inner_slope = hn::MulAdd(hn::Mul(hn::Set(d, 3.0f), square), cubic, linear);
  return {value, hn::MulAdd(hn::Mul(value, hn::Sub(one, gate)), inner_slope, gate)};
}

template <class D, class V>
HWY_INLINE ValueAndSlope<V> silu(D d, V x) {
  const V one = hn::Set(d, 1.0f), gate = sigmoid(d, x), value = hn::Mul(x, gate);
  return {value, hn::MulAdd(value, hn::Sub(one, gate), gate)};
}

/// One predictable branch per vector: cheaper to build than a loop for each activation, and no slower.
template <class D, class V>
HWY_INLINE ValueAndSlope<V> activate(D d, Activation activation, V x) {
  switch (activation) {
    case Activation::gelu_erf:
      return gelu_erf(d, x);
    case Activation::gelu_tanh:
      return gelu_tanh(d, x);
    default:
      return silu(d, x);
  }
}

void activate_forward(const Activate& op, int64_t begin, int64_t end) {
  visit(op.x.dtype(), [&](auto tag) HWY_ATTR {
    using T = typename decltype(tag)::type;
    const F32 d;
    const T* x = op.x.data<T>();
    T* y = op.y.data<T>();
    sweep(d, begin, end, [=, activation = op.activation](int64_t i, auto access) HWY_ATTR {
      access.store(d, activate(d, activation, access.load(d, x + i)).value, y + i);
    });
  });
}

void activate_backward(const ActivateBackward& op, int64_t begin, int64_t end) {
  visit(op.x.dtype(), [&](auto tag) HWY_ATTR {
    using T = typename decltype(tag)::type;
    const F32 d;
    const T *x = op.x.data<T>(), *dy = op.dy.data<T>();
    T* dx = op.dx.data<T>();
    sweep(d, begin, end, [=, activation = op.activation](int64_t i, auto access) HWY_ATTR {
      const auto slope = activate(d, activation, access.load(d, x + i)).slope;
      access.store(d, hn::Mul(access.load(d, dy + i), slope), dx + i);
    });
  });
}

void gated_forward(const GatedActivate& op, int64_t first_row, int64_t last_row) {
  visit(op.y.dtype(), [&](auto tag) HWY_ATTR {
    using T = typename decltype(tag)::type;
    const F32 d;
    const int64_t n = op.gate_up.dim(-1) / 2;
    for (int64_t row = first_row; row < last_row; ++row) {
      const T *gate = op.gate_up.data<T>() + row * 2 * n, *up = gate + n;
      T* y = op.y.data<T>() + row * n;
      sweep(d, 0, n, [=, activation = op.activation](int64_t i, auto access) HWY_ATTR {
        const auto value = activate(d, activation, access.load(d, gate + i)).value;
        access.store(d, hn::Mul(value, access.load(d, up + i)), y + i);
      });
    }
  });
}

void gated_backward(const GatedActivateBackward& op, int64_t first_row, int64_t last_row) {
  visit(op.dy.dtype(), [&](auto tag) HWY_ATTR {
    using T = typename decltype(tag)::type;
    const F32 d;
    const int64_t n = op.gate_up.dim(-1) / 2;
    for (int64_t row = first_row; row < last_row; ++row) {
      const T *gate = op.gate_up.data<T>() + row * 2 * n, *up = gate + n;
      const T* dy = op.dy.data<T>() + row * n;
      T *d_gate = op.d_gate_up.data<T>() + row * 2 * n, *d_up = d_gate + n;
      sweep(d, 0, n, [=, activation = op.activation](int64_t i, auto access) HWY_ATTR {
        const auto [value, slope] = activate(d, activation, access.load(d, gate + i));
        const auto upstream = access.load(d, dy + i), factor = access.load(d, up + i);
        access.store(d, hn::Mul(hn::Mul(upstream, factor), slope), d_gate + i);
        access.store(d, hn::Mul(upstream, value), d_up + i);
      });
    }
  });
}

}  // namespace nought::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nought::cpu {

HWY_EXPORT(activate_forward);
HWY_EXPORT(activate_backward);
HWY_EXPORT(gated_forward);
HWY_EXPORT(gated_backward);

void run(const Activate& op) {
  if (op.x.dtype() == DType::f64) return reference::run(op);
  check(op);
  parallel_elements(op.x.numel(), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(activate_forward)(op, begin, end);
  });
}

void run(const ActivateBackward& op) {
  if (op.x.dtype() == DType::f64) return reference::run(op);
  check(op);
  parallel_elements(op.x.numel(), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(activate_backward)(op, begin, end);
  });
}

void run(const GatedActivate& op) {
  if (op.y.dtype() == DType::f64) return reference::run(op);
  check(op);
  parallel_rows(op.gate_up.rows(), op.gate_up.dim(-1), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(gated_forward)(op, begin, end);
  });
}

void run(const GatedActivateBackward& op) {
  if (op.dy.dtype() == DType::f64) return reference::run(op);
  check(op);
  parallel_rows(op.gate_up.rows(), op.gate_up.dim(-1), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(gated_backward)(op, begin, end);
  });
}

}  // namespace nought::cpu
#endif
