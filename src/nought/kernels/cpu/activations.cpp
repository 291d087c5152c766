#include <hwy/cache_control.h>

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

using V = hn::Vec<F32>;

/// activation(x) and its derivative.
struct ValueAndSlope {
  V value, slope;
};

/// Whether results of type T are rounded more than brief functions err.
template <class T>
inline constexpr bool kBrief = std::is_same_v<T, bf16_t>;

template <class T>
struct GeluErf {
  static HWY_INLINE Normal<V> normal_of(V x) {
    if constexpr (kBrief<T>)
      return brief_normal(F32(), x);
    else
      return normal(F32(), x);
  }
  static HWY_INLINE V value(V x) { return hn::Mul(x, normal_of(x).cdf); }
  static HWY_INLINE ValueAndSlope value_and_slope(V x) {
    const auto [cdf, density] = normal_of(x);
    return {hn::Mul(x, cdf), hn::MulAdd(x, density, cdf)};
  }
};

/// x * sigmoid(x * inner(x^2)), inner a linear function.
template <class T, class Inner>
struct SelfGated {
  static HWY_INLINE V gate_divisor(V x, V square) {
    const F32 d;
    if constexpr (kBrief<T>)
      return hn::Add(hn::Set(d, 1.0f), brief_exp2(d, hn::Mul(x, Inner::of(square, -std::numbers::log2e_v<float>))));
    else
      return sigmoid_divisor(d, hn::Mul(x, Inner::of(square, 1.0f)));
  }
  static HWY_INLINE V value(V x) { return hn::Div(x, gate_divisor(x, hn::Mul(x, x))); }
  static HWY_INLINE ValueAndSlope value_and_slope(V x) {
    const V one = hn::Set(F32(), 1.0f), square = hn::Mul(x, x);
    const V gate = hn::Div(one, gate_divisor(x, square)), value = hn::Mul(x, gate);
    return {value, hn::MulAdd(hn::Mul(value, hn::Sub(one, gate)), Inner::slope(square), gate)};
  }
};

/// 2u = 2 sqrt(2/pi) (x + 0.044715 x^3), as x * sigmoid(2u) is x/2 * (1 + tanh(u)).
struct OfGeluTanh {
  static constexpr float kLinear = 2 * std::numbers::sqrt2_v<float> * std::numbers::inv_sqrtpi_v<float>;
  static constexpr float kCubic = 0.044715f * kLinear;

  static HWY_INLINE V of(V square, float scale) {
    return hn::MulAdd(square, hn::Set(F32(), scale * kCubic), hn::Set(F32(), scale * kLinear));
  }
  /// The derivative of x * inner(x^2).
  static HWY_INLINE V slope(V square) {
    return hn::MulAdd(square, hn::Set(F32(), 3 * kCubic), hn::Set(F32(), kLinear));
  }
};

struct OfSilu {
  static HWY_INLINE V of(V /*square*/, float scale) { return hn::Set(F32(), scale); }
  static HWY_INLINE V slope(V /*square*/) { return hn::Set(F32(), 1.0f); }
};

/// Calls f(tag, activate) with the type of the elements and the activation: a loop of its own for each,
/// in which the constants stay in registers.
template <class F>
HWY_INLINE void visit(DType dtype, Activation activation, const F& f) {
  visit(dtype, [&](auto tag) HWY_ATTR {
    using T = typename decltype(tag)::type;
    switch (activation) {
      case Activation::gelu_erf:
        return f(tag, GeluErf<T>{});
      case Activation::gelu_tanh:
        return f(tag, SelfGated<T, OfGeluTanh>{});
      case Activation::silu:
        return f(tag, SelfGated<T, OfSilu>{});
    }
  });
}

HWY_FLATTEN void activate_forward(const Activate& op, int64_t begin, int64_t end) {
  visit(op.x.dtype(), op.activation, [&](auto tag, auto activate) HWY_ATTR {
    using T = typename decltype(tag)::type;
    const F32 d;
    const T* x = op.x.data<T>();
    T* y = op.y.data<T>();
    sweep(d, begin, end,
          [=](int64_t i, auto access) HWY_ATTR { access.store(d, activate.value(access.load(d, x + i)), y + i); });
  });
}

HWY_FLATTEN void activate_backward(const ActivateBackward& op, int64_t begin, int64_t end) {
  visit(op.x.dtype(), op.activation, [&](auto tag, auto activate) HWY_ATTR {
    using T = typename decltype(tag)::type;
    const F32 d;
    const T *x = op.x.data<T>(), *dy = op.dy.data<T>();
    T* dx = op.dx.data<T>();
    sweep(d, begin, end, [=](int64_t i, auto access) HWY_ATTR {
      access.store(d, hn::Mul(access.load(d, dy + i), activate.value_and_slope(access.load(d, x + i)).slope), dx + i);
    });
  });
}

/// One row of [gate | up], and how far the next one is: its halves are asked for ahead, as the hardware's prefetch does
/// not follow reads that skip the other half of each row.
template <class T>
struct GateUp {
  GateUp(const Tensor& rows, int64_t row, int64_t last_row)
      : n(rows.dim(-1) / 2),
        gate(rows.data<std::remove_const_t<T>>() + row * 2 * n),
        up(gate + n),
        next(row + 1 < last_row ? 2 * n : 0) {}
  HWY_INLINE void prefetch(int64_t i) const {
    hwy::Prefetch(gate + next + i);
    hwy::Prefetch(up + next + i);
  }

  int64_t n;
  T *gate, *up;
  int64_t next;
};

HWY_FLATTEN void gated_forward(const GatedActivate& op, int64_t first_row, int64_t last_row) {
  visit(op.y.dtype(), op.activation, [&](auto tag, auto activate) HWY_ATTR {
    using T = typename decltype(tag)::type;
    const F32 d;
    for (int64_t row = first_row; row < last_row; ++row) {
      const GateUp<const T> in(op.gate_up, row, last_row);
      T* y = op.y.data<T>() + row * in.n;
      sweep(d, 0, in.n, [=](int64_t i, auto access) HWY_ATTR {
        in.prefetch(i);
        access.store(d, hn::Mul(activate.value(access.load(d, in.gate + i)), access.load(d, in.up + i)), y + i);
      });
    }
  });
}

HWY_FLATTEN void gated_backward(const GatedActivateBackward& op, int64_t first_row, int64_t last_row) {
  visit(op.dy.dtype(), op.activation, [&](auto tag, auto activate) HWY_ATTR {
    using T = typename decltype(tag)::type;
    const F32 d;
    for (int64_t row = first_row; row < last_row; ++row) {
      const GateUp<const T> in(op.gate_up, row, last_row);
      const GateUp<T> out(op.d_gate_up, row, last_row);
      const T* dy = op.dy.data<T>() + row * in.n;
      sweep(d, 0, in.n, [=](int64_t i, auto access) HWY_ATTR {
        in.prefetch(i);
        out.prefetch(i);
        const auto [value, slope] = activate.value_and_slope(access.load(d, in.gate + i));
        const auto upstream = access.load(d, dy + i), factor = access.load(d, in.up + i);
        access.store(d, hn::Mul(hn::Mul(upstream, factor), slope), out.gate + i);
        access.store(d, hn::Mul(upstream, value), out.up + i);
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
