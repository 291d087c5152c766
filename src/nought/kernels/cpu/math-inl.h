// The functions of one variable that activations and the loss need, on vectors of fp32: compiled once per target.
#if defined(NOUGHT_KERNELS_CPU_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NOUGHT_KERNELS_CPU_MATH_INL_H_
#undef NOUGHT_KERNELS_CPU_MATH_INL_H_
#else
#define NOUGHT_KERNELS_CPU_MATH_INL_H_
#endif

#include <numbers>

#include <hwy/contrib/math/math-inl.h>

#include "nought/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nought::cpu::HWY_NAMESPACE {

/// e^x for x <= 88; a NaN stays one (Highway's own Exp makes it 0).
template <class D, class V>
HWY_INLINE V exp(D d, V x) {
  return hn::IfThenElse(hn::Eq(x, x), hn::Exp(d, x), x);
}

/// 1 / (1 + e^-x). The exponent is held below the point where e^-x would overflow.
template <class D, class V>
HWY_INLINE V sigmoid(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  return hn::Div(one, hn::Add(one, hn::Exp(d, hn::Min(hn::Neg(x), hn::Set(d, 88.0f)))));
}

/// The cumulative distribution function of the standard normal distribution, and its density.
template <class V>
struct Normal {
  V cdf, density;
};

/// cdf(-|x|) is the density's exponential times a smooth function of |x|, approximated by t * P(t), t = 1 / (1 + a
/// |x|), with the coefficients that interpolate it at the Chebyshev nodes over |x| <= 14.5 (relative error 3e-8 before
/// rounding). So the relative error stays near 4e-7 in the left tail too, where 1 + erf would cancel.
template <class D, class V>
HWY_INLINE Normal<V> normal(D d, V x) {
  constexpr float kScale = 0.27f;
  constexpr float kCoefficients[] = {0.1077227585f,   0.1075070932f, 0.1020635491f,  0.07107758252f, 0.1100542173f,
                                     -0.07234456237f, 0.1724360972f, -0.1277225574f, 0.02920583342f};
  const V magnitude = hn::Abs(x);
  const V t = hn::Div(hn::Set(d, 1.0f), hn::MulAdd(magnitude, hn::Set(d, kScale), hn::Set(d, 1.0f)));
  V p = hn::Set(d, kCoefficients[8]);
  for (int i = 7; i >= 0; --i) p = hn::MulAdd(p, t, hn::Set(d, kCoefficients[i]));
  // e^(-x^2/2), with what rounding x^2 lost (known where multiply-add is one operation) put back to first order.
  const V half = hn::Set(d, 0.5f), square = hn::Mul(x, x), lost = hn::MulSub(x, x, square);
  const V raw = hn::Exp(d, hn::Neg(hn::Mul(half, hn::Min(square, hn::Set(d, 256.0f)))));
  const V decay = hn::IfThenElse(hn::Lt(square, hn::Set(d, 256.0f)), hn::NegMulAdd(raw, hn::Mul(half, lost), raw), raw);
  const V left = hn::Mul(decay, hn::Mul(t, p));
  const float inv_sqrt_2pi = std::numbers::inv_sqrtpi_v<float> / std::numbers::sqrt2_v<float>;
  return {hn::IfThenElse(hn::Lt(x, hn::Zero(d)), left, hn::Sub(hn::Set(d, 1.0f), left)),
          hn::Mul(decay, hn::Set(d, inv_sqrt_2pi))};
}

}  // namespace nought::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
