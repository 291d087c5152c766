#include <numbers>

#include "nought/cuda/backend/functions.h"
#include "nought/cuda/backend/map.h"
#include "nought/cuda/backend/operations.h"

namespace nought::cuda {
namespace {

/// activation(x) and its derivative, in fp32 as kernels/cpu/activations.cpp has them.
template <class Real>
struct ValueAndSlope {
  Real value, slope;
};

/// Whether values are rounded to 16 bits, so that rough functions do.
template <class T>
constexpr bool kIsRough = sizeof(T) == 2;
template <bool kRough, class Real>
__device__ Real sigmoid_as(Real x) {
  if constexpr (kRough)
    return rough_sigmoid(x);
  else
    return sigmoid(x);
}

struct GeluErf {
  template <bool kRough, class Real>
  static __device__ Real value(Real x) {
    return x * normal<kRough>(x).cdf;
  }
  template <bool kRough, class Real>
  static __device__ ValueAndSlope<Real> of(Real x) {
    const Normal<Real> at = normal<kRough>(x);
    return {x * at.cdf, multiply_add(x, at.density, at.cdf)};
  }
};

/// x * sigmoid(x * inner(x^2)), inner a linear function.
template <class Inner>
struct SelfGated {
  template <bool kRough, class Real>
  static __device__ Real value(Real x) {
    const Real inner = x * Inner::at(x * x);
    if constexpr (kRough)
      return x * rough_sigmoid(inner);
    else
      return x / sigmoid_divisor(inner);
  }
  template <bool kRough, class Real>
  static __device__ ValueAndSlope<Real> of(Real x) {
    const Real square = x * x, gate = sigmoid_as<kRough>(x * Inner::at(square)), value = x * gate;
    return {value, multiply_add(value * (1 - gate), Inner::slope(square), gate)};
  }
};
/// 2u = 2 sqrt(2/pi) (x + 0.044715 x^3), as x * sigmoid(2u) is x/2 * (1 + tanh(u)).
struct OfGeluTanh {
  static constexpr double kLinear = 2 * std::numbers::sqrt2 * std::numbers::inv_sqrtpi, kCubic = 0.044715 * kLinear;
  template <class Real>
  static __device__ Real at(Real square) {
    return multiply_add(square, static_cast<Real>(kCubic), static_cast<Real>(kLinear));
  }
  template <class Real>
  static __device__ Real slope(Real square) {
    return multiply_add(square, 3 * static_cast<Real>(kCubic), static_cast<Real>(kLinear));
  }
};
struct OfSilu {
  template <class Real>
  static __device__ Real at(Real /*square*/) {
    return 1;
  }
  template <class Real>
  static __device__ Real slope(Real /*square*/) {
    return 1;
  }
};

struct Relu {
  template <bool kRough, class Real>
  static __device__ Real value(Real x) {
    return x <= 0 ? Real{0} : x;  // NaN for NaN
  }
  template <bool kRough, class Real>
  static __device__ ValueAndSlope<Real> of(Real x) {
    return {value<kRough>(x), value<kRough>(x > 0 ? Real{1} : x)};
  }
};

/// Calls f(tag, activation) with the type of the elements.
template <class F>
void visit_activation(DType dtype, Activation activation, const F& f) {
  visit_float(dtype, [&](auto tag) {
    switch (activation) {
      case Activation::gelu_erf:
        return f(tag, GeluErf());
      case Activation::gelu_tanh:
        return f(tag, SelfGated<OfGeluTanh>());
      case Activation::silu:
        return f(tag, SelfGated<OfSilu>());
      case Activation::relu:
        return f(tag, Relu());
    }
  });
}

template <class T, class F>
struct Activated {
  using Real = accumulator_t<T>;
  __device__ T operator()(T x) const { return static_cast<T>(F::template value<kIsRough<T>>(Real{x})); }
};
template <class T, class F>
struct ActivatedBackward {
  using Real = accumulator_t<T>;
  __device__ T operator()(T x, T dy) const {
    return static_cast<T>(Real{dy} * F::template of<kIsRough<T>>(Real{x}).slope);
  }
};

template <class T, class F>
struct Gated {
  using Real = accumulator_t<T>;
  const T* gate_up;
  T* y;
  int64_t n;
  bool aligned;
  template <int kCount>
  __device__ void operator()(int64_t row, int64_t begin, std::integral_constant<int, kCount> /*count*/) const {
    const T* const gate = gate_up + row * 2 * n + begin;
    const Values<T, kCount> gates(gate, aligned), ups(gate + n, aligned);
    Real made[kCount];
    for (int k = 0; k < kCount; ++k) made[k] = F::template value<kIsRough<T>>(gates[k]) * ups[k];
    write_values<T, kCount>(y + row * n + begin, aligned, made);
  }
};
template <class T, class F>
struct GatedBackward {
  using Real = accumulator_t<T>;
  const T *gate_up, *dy;
  T* d_gate_up;
  int64_t n;
  bool aligned;
  template <int kCount>
  __device__ void operator()(int64_t row, int64_t begin, std::integral_constant<int, kCount> /*count*/) const {
    const int64_t gate = row * 2 * n + begin;
    const Values<T, kCount> gates(gate_up + gate, aligned), ups(gate_up + gate + n, aligned),
        upstream(dy + row * n + begin, aligned);
    Real by_gate[kCount], by_up[kCount];
    for (int k = 0; k < kCount; ++k) {
      const ValueAndSlope<Real> at = F::template of<kIsRough<T>>(gates[k]);
      by_gate[k] = upstream[k] * ups[k] * at.slope;
      by_up[k] = upstream[k] * at.value;
    }
    write_values<T, kCount>(d_gate_up + gate, aligned, by_gate);  // may be gate_up, which has been read
    write_values<T, kCount>(d_gate_up + gate + n, aligned, by_up);
  }
};

template <class Real>
struct Limits {
  Real limit, alpha;
};
template <class T>
struct Clamped {
  using Real = accumulator_t<T>;
  const T* gate_up;
  T* y;
  Limits<Real> of;
  __device__ void operator()(int64_t i) const {
    const Real gate{gate_up[2 * i]}, up{gate_up[2 * i + 1]};
    const Real g = gate < of.limit ? gate : of.limit, least = up > -of.limit ? up : -of.limit;
    const Real u = least < of.limit ? least : of.limit;
    y[i] = static_cast<T>((u + 1) * g * sigmoid(of.alpha * g));
  }
};
template <class T>
struct ClampedBackward {
  using Real = accumulator_t<T>;
  const T *gate_up, *dy;
  T* d_gate_up;
  Limits<Real> of;
  __device__ void operator()(int64_t i) const {
    const Real gate{gate_up[2 * i]}, up{gate_up[2 * i + 1]}, upstream{dy[i]};
    const Real g = gate < of.limit ? gate : of.limit, least = up > -of.limit ? up : -of.limit;
    const Real u = least < of.limit ? least : of.limit;
    const Real s = sigmoid(of.alpha * g), slope = s * multiply_add(of.alpha * g, 1 - s, Real{1});
    const Real by_gate = gate > of.limit ? Real{0} : (u + 1) * slope;  // torch passes what is at the limit itself
    const Real by_up = up > of.limit || up < -of.limit ? Real{0} : g * s;
    d_gate_up[2 * i] = static_cast<T>(upstream * by_gate);
    d_gate_up[2 * i + 1] = static_cast<T>(upstream * by_up);
  }
};

template <class T>
struct Capped {
  using Real = accumulator_t<T>;
  Real cap, inverse;
  __device__ T operator()(T x) const { return static_cast<T>(cap * tangent(Real{x} * inverse)); }
};
template <class T>
struct CappedBackward {
  using Real = accumulator_t<T>;
  Real inverse;
  __device__ T operator()(T d, T y) const {
    const Real t = Real{y} * inverse;
    return static_cast<T>(Real{d} * multiply_add(-t, t, Real{1}));
  }
};

template <class T>
struct Bounded {
  using Real = accumulator_t<T>;
  Real limit;
  __device__ bool outside(T x) const { return Real{x} > limit || Real{x} < -limit; }
  __device__ T operator()(T x) const { return outside(x) ? static_cast<T>(Real{x} > 0 ? limit : -limit) : x; }
  __device__ T operator()(T x, T dy) const { return outside(x) ? static_cast<T>(Real{0}) : dy; }
};

}  // namespace

void start(const Activate& op, Place& at) {
  visit_activation(op.x.dtype(), op.activation, [&](auto tag, auto f) {
    using T = typename decltype(tag)::type;
    map(at.launch, op.x.numel(), Activated<T, decltype(f)>(), op.y.data<T>(), static_cast<const T*>(op.x.data<T>()));
  });
}
void start(const ActivateBackward& op, Place& at) {
  visit_activation(op.x.dtype(), op.activation, [&](auto tag, auto f) {
    using T = typename decltype(tag)::type;
    map(at.launch, op.x.numel(), ActivatedBackward<T, decltype(f)>(), op.dx.data<T>(),
        static_cast<const T*>(op.x.data<T>()), static_cast<const T*>(op.dy.data<T>()));
  });
}
void start(const GatedActivate& op, Place& at) {
  visit_activation(op.y.dtype(), op.activation, [&](auto tag, auto f) {
    using T = typename decltype(tag)::type;
    constexpr int kWidth = kPackOf<T>;
    const T* const gate_up = op.gate_up.data<T>();
    T* const y = op.y.data<T>();
    const int64_t n = op.gate_up.dim(-1) / 2;
    const Gated<T, decltype(f)> gated{gate_up, y, n, packs_fit<kWidth>(n, gate_up, y)};
    for_each_row<kWidth>(at.launch, op.gate_up.rows(), n, gated);
  });
}
void start(const GatedActivateBackward& op, Place& at) {
  visit_activation(op.dy.dtype(), op.activation, [&](auto tag, auto f) {
    using T = typename decltype(tag)::type;
    constexpr int kWidth = kPackOf<T>;
    const T *const gate_up = op.gate_up.data<T>(), *const dy = op.dy.data<T>();
    T* const d = op.d_gate_up.data<T>();
    const int64_t n = op.gate_up.dim(-1) / 2;
    const GatedBackward<T, decltype(f)> gated{gate_up, dy, d, n, packs_fit<kWidth>(n, gate_up, dy, d)};
    for_each_row<kWidth>(at.launch, op.gate_up.rows(), n, gated);
  });
}
void start(const ClampedSwiglu& op, Place& at) {
  visit_float(op.y.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Real = accumulator_t<T>;
    for_each(
        at.launch, op.y.numel(),
        Clamped<T>{op.gate_up.data<T>(), op.y.data<T>(), {static_cast<Real>(op.limit), static_cast<Real>(op.alpha)}});
  });
}
void start(const ClampedSwigluBackward& op, Place& at) {
  visit_float(op.dy.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Real = accumulator_t<T>;
    for_each(at.launch, op.dy.numel(),
             ClampedBackward<T>{op.gate_up.data<T>(),
                                op.dy.data<T>(),
                                op.d_gate_up.data<T>(),
                                {static_cast<Real>(op.limit), static_cast<Real>(op.alpha)}});
  });
}
void start(const Softcap& op, Place& at) {
  visit_float(op.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Real = accumulator_t<T>;
    map(at.launch, op.x.numel(), Capped<T>{static_cast<Real>(op.cap), static_cast<Real>(1 / op.cap)}, op.x.data<T>(),
        static_cast<const T*>(op.x.data<T>()));
  });
}
void start(const SoftcapBackward& op, Place& at) {
  visit_float(op.y.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Real = accumulator_t<T>;
    map(at.launch, op.y.numel(), CappedBackward<T>{static_cast<Real>(1 / op.cap)}, op.d.data<T>(),
        static_cast<const T*>(op.d.data<T>()), static_cast<const T*>(op.y.data<T>()));
  });
}
void start(const Clamp& op, Place& at) {
  visit_float(op.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    map(at.launch, op.x.numel(), Bounded<T>{static_cast<accumulator_t<T>>(op.limit)}, op.y.data<T>(),
        static_cast<const T*>(op.x.data<T>()));
  });
}
void start(const ClampBackward& op, Place& at) {
  visit_float(op.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    map(at.launch, op.x.numel(), Bounded<T>{static_cast<accumulator_t<T>>(op.limit)}, op.dx.data<T>(),
        static_cast<const T*>(op.x.data<T>()), static_cast<const T*>(op.dy.data<T>()));
  });
}

}  // namespace nought::cuda
