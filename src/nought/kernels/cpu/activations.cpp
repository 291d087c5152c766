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

struct GeluErf {
  static HWY_INLINE V value(V x) { return hn::Mul(x, normal(F32(), x).cdf); }
  static HWY_INLINE ValueAndSlope value_and_slope(V x) {
    const auto [cdf, density] = normal(F32(), x);
    return {hn::Mul(x, cdf), hn::MulAdd(x, density, cdf)};
  }
};

/// x * sigmoid(x * inner(x^2)), inner a linear function.
template <class Inner>
struct SelfGated {
  static HWY_INLINE V gate_divisor(V x, V square) { return sigmoid_divisor(F32(), hn::Mul(x, Inner::of(square))); }
  static HWY_INLINE V value(V x) { return hn::Div(x, gate_divisor(x, hn::Mul(x, x))); }
  static HWY_INLINE ValueAndSlope value_and_slope(V x) {
    const V one = hn::Set(F32(), 1.0f), square = hn::Mul(x, x);
    const V gate = hn::Div(one, gate_divisor(x, square)), value = hn::Mul(x, gate);
    return {value, hn::MulAdd(hn::Mul(value, hn::Sub(one, gate)), Inner::slope(square), gate)};
  }
};

/// 2u = 2 sqrt(2/pi) (x + 0.044715 x^3), as x * sigmoid(2u) is x/2 * (1 + tanh(u)).
struct OfGeluTanh {
  static constexpr auto kLinear = static_cast<float>(GeluTanhTail::kLinear);
  static constexpr auto kCubic = static_cast<float>(GeluTanhTail::kCubic);

  static HWY_INLINE V of(V square) { return hn::MulAdd(square, hn::Set(F32(), kCubic), hn::Set(F32(), kLinear)); }
  /// The derivative of x * inner(x^2).
  static HWY_INLINE V slope(V square) {
    return hn::MulAdd(square, hn::Set(F32(), 3 * kCubic), hn::Set(F32(), kLinear));
  }
};

struct OfSilu {
  static HWY_INLINE V of(V /*square*/) { return hn::Set(F32(), 1.0f); }
  static HWY_INLINE V slope(V /*square*/) { return hn::Set(F32(), 1.0f); }
};

/// NaN for NaN.
struct Relu {
  static HWY_INLINE V value(V x) {
    const V zero = hn::Zero(F32());
    return hn::IfThenElse(hn::Le(x, zero), zero, x);
  }
  static HWY_INLINE ValueAndSlope value_and_slope(V x) {
    return {value(x), value(hn::IfThenElse(hn::Gt(x, hn::Zero(F32())), hn::Set(F32(), 1.0f), x))};
  }
};

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

/// GELU is x * g(x) with g(-x) = 1 - g(x). So it is max(x, 0) - |x| g(-|x|), and its slope at |x| is 1 less that at
/// -|x|: only g(-t) and the slope at -t for t >= 0 are approximated.
template <class Tail>
struct BriefGelu {
  static constexpr double kLimit = HWY_TARGET == HWY_AVX3 ? 7.87 : 5.5;
  using Values = Table<3, 4>;
  using Slopes = Table<4, 6>;
  static constexpr Values kValues = compile_time::tabulate<kPieces, Values::kDegree>(Tail::value, kLimit);
  static constexpr Slopes kSlopes = compile_time::tabulate<kPieces, Slopes::kDegree>(Tail::slope, kLimit);

  static HWY_INLINE V bounded(V x) { return hn::Min(hn::Set(F32(), kValues.limit), hn::Abs(x)); }  // NaN for NaN
  static HWY_INLINE V value(V x) {
    const V t = bounded(x);
    return hn::NegMulAdd(t, evaluate(F32(), kValues, t), hn::Max(hn::Zero(F32()), x));
  }
  static HWY_INLINE ValueAndSlope value_and_slope(V x) {
    const V below = evaluate(F32(), kSlopes, bounded(x));
    return {value(x), hn::IfNegativeThenElse(x, below, hn::Sub(hn::Set(F32(), 1.0f), below))};
  }
};

struct BriefSilu {
  /// 1 + e^-x. A division costs no more than the polynomial that would replace it: it has a unit of its own.
  static HWY_INLINE V gate_divisor(V x) {
    const F32 d;
    if constexpr (HWY_TARGET == HWY_AVX2)  // AVX-512 goes on to 0 and infinity. NaN is the second operand.
      x = hn::Min(hn::Set(d, 87.0f), hn::Max(hn::Set(d, -87.0f), x));
    return hn::Add(hn::Set(d, 1.0f), brief_exp2<false>(d, x, -std::numbers::log2e_v<float>));
  }
  static HWY_INLINE V value(V x) { return hn::Div(x, gate_divisor(x)); }
  static HWY_INLINE ValueAndSlope value_and_slope(V x) {
    const V one = hn::Set(F32(), 1.0f), gate = hn::Div(one, gate_divisor(x)), value = hn::Mul(x, gate);
    return {value, hn::MulAdd(value, hn::Sub(one, gate), gate)};
  }
};

#endif

/// Calls f(tag, activate) with the type of the elements and the activation: a loop of its own for each,
/// in which the constants stay in registers.
template <class F>
HWY_INLINE void visit(DType dtype, Activation activation, const F& f) {
  visit(dtype, [&](auto tag) HWY_ATTR {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
    if constexpr (kBrief<typename decltype(tag)::type>) {
      switch (activation) {
        case Activation::gelu_erf:
          return f(tag, BriefGelu<GeluErfTail>{});
        case Activation::gelu_tanh:
          return f(tag, BriefGelu<GeluTanhTail>{});
        case Activation::silu:
          return f(tag, BriefSilu{});
        case Activation::relu:
          return f(tag, Relu{});
      }
    }
#endif
    switch (activation) {
      case Activation::gelu_erf:
        return f(tag, GeluErf{});
      case Activation::gelu_tanh:
        return f(tag, SelfGated<OfGeluTanh>{});
      case Activation::silu:
        return f(tag, SelfGated<OfSilu>{});
      case Activation::relu:
        return f(tag, Relu{});
    }
  });
}

HWY_FLATTEN void activate_forward(const Activate& op, int64_t begin, int64_t end) {
  visit(op.x.dtype(), op.activation, [&](auto tag, auto activate) HWY_ATTR {
    using T = typename decltype(tag)::type;
    const F32 d;
    const T* x = op.x.data<T>();
    T* y = op.y.data<T>();
    sweep_all<T>(d, begin, end, [=](int64_t i, auto access) HWY_ATTR {
      access.store_approximate(d, activate.value(access.load(d, x + i)), y + i);
    });
  });
}

HWY_FLATTEN void activate_backward(const ActivateBackward& op, int64_t begin, int64_t end) {
  visit(op.x.dtype(), op.activation, [&](auto tag, auto activate) HWY_ATTR {
    using T = typename decltype(tag)::type;
    const F32 d;
    const T *x = op.x.data<T>(), *dy = op.dy.data<T>();
    T* dx = op.dx.data<T>();
    sweep_all<T>(d, begin, end, [=](int64_t i, auto access) HWY_ATTR {
      access.store_approximate(
          d, hn::Mul(access.load(d, dy + i), activate.value_and_slope(access.load(d, x + i)).slope), dx + i);
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
  template <class Access>
  HWY_INLINE void prefetch(const Access& access, int64_t i) const {
    access.prefetch(gate + next + i);
    access.prefetch(up + next + i);
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
      sweep_all<T>(d, 0, in.n, [=](int64_t i, auto access) HWY_ATTR {
        in.prefetch(access, i);
        access.store_approximate(d, hn::Mul(activate.value(access.load(d, in.gate + i)), access.load(d, in.up + i)),
                                 y + i);
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
      sweep_all<T>(d, 0, in.n, [=](int64_t i, auto access) HWY_ATTR {
        in.prefetch(access, i);
        out.prefetch(access, i);
        const auto [value, slope] = activate.value_and_slope(access.load(d, in.gate + i));
        const auto upstream = access.load(d, dy + i), factor = access.load(d, in.up + i);
        access.store_approximate(d, hn::Mul(hn::Mul(upstream, factor), slope), out.gate + i);
        access.store_approximate(d, hn::Mul(upstream, value), out.up + i);
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
