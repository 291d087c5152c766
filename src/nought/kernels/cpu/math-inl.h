// The functions of one variable that activations and the loss need, on vectors of fp32. Compiled once per target.
#if defined(NOUGHT_KERNELS_CPU_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NOUGHT_KERNELS_CPU_MATH_INL_H_
#undef NOUGHT_KERNELS_CPU_MATH_INL_H_
#else
#define NOUGHT_KERNELS_CPU_MATH_INL_H_
#endif

#include <numbers>

#include <hwy/highway.h>

#include "nought/kernels/cpu/piecewise.h"
#include "nought/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nought::cpu::HWY_NAMESPACE {

/// coefficients[0] + coefficients[1] t + ..., by Horner's scheme.
template <class D, class V, int kTerms>
HWY_INLINE V polynomial(D d, V t, const float (&coefficients)[kTerms]) {
  V p = hn::Set(d, coefficients[kTerms - 1]);
  for (int k = kTerms - 2; k >= 0; --k) p = hn::MulAdd(p, t, hn::Set(d, coefficients[k]));
  return p;
}

// --- to fp32 accuracy ---

/// e^x = mantissa * scale, scale a power of two.
template <class V>
struct Exponential {
  V mantissa, scale;
};

/// e^x for x in [-87, 88] with a relative error near 1e-7; 1 for 0. Fewer operations than Highway's own, which takes
/// care of subnormal results and loses NaN: here a NaN x gives a NaN mantissa.
///
/// x = n ln 2 + r; n lands in the last bits of `shifted`, biased as an exponent is. The mantissa is 1 + r + r^2 q(r), q
/// the minimax polynomial of degree 4 for |r| <= ln 2 / 2.
template <class D, class V>
HWY_INLINE Exponential<V> exponential(D d, V x) {
  const V bias = hn::Set(d, 12582912.0f + 127.0f);  // 1.5 * 2^23: the unit of its last place is 1
  const V shifted = hn::MulAdd(x, hn::Set(d, std::numbers::log2e_v<float>), bias);
  const V n = hn::Sub(shifted, bias);
  const V upper = hn::Set(d, 0.693145752f),
          lower = hn::Set(d, 1.42860677e-6f);  // ln 2 in two parts; n * upper is exact
  const V r = hn::NegMulAdd(n, lower, hn::NegMulAdd(n, upper, x));
  V q = hn::Set(d, 0.001381454007f);
  for (float c : {0.008368745108f, 0.04166839079f, 0.166665204f, 0.4999999343f, 1.0f, 1.0f}) {
    q = hn::MulAdd(q, r, hn::Set(d, c));
  }
  const hn::RebindToUnsigned<D> bits;
  return {q, hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(bits, shifted)))};
}

/// e^x for x <= 88: 0 below -87, NaN for NaN.
template <class D, class V>
HWY_INLINE V exp(D d, V x) {
  const auto [mantissa, scale] = exponential(d, x);
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.0f)), hn::Mul(mantissa, scale));
}

/// 1 + e^-x, of which a sigmoid is the inverse; some positive number for NaN.
template <class D, class V>
HWY_INLINE V sigmoid_divisor(D d, V x) {
  const V limit = hn::Set(d, 87.0f);
  const auto [mantissa, scale] = exponential(d, hn::Max(hn::Min(hn::Neg(x), limit), hn::Neg(limit)));
  return hn::MulAdd(mantissa, scale, hn::Set(d, 1.0f));
}

template <class D, class V>
HWY_INLINE V sigmoid(D d, V x) {
  return hn::Div(hn::Set(d, 1.0f), sigmoid_divisor(d, x));
}

/// tanh(x) with a relative error near 2e-7; NaN for NaN.
///
/// Near 0, where 1 - e^(-2x) would cancel, the first terms of its series.
template <class D, class V>
HWY_INLINE V tanh(D d, V x) {
  const V one = hn::Set(d, 1.0f), magnitude = hn::Abs(x), square = hn::Mul(x, x);
  const V decay = exp(d, hn::Mul(hn::Set(d, -2.0f), magnitude));
  const V far = hn::CopySign(hn::Div(hn::Sub(one, decay), hn::Add(one, decay)), x);
  V series = hn::Set(d, -1382.0f / 155925.0f);
  for (float c : {62.0f / 2835.0f, -17.0f / 315.0f, 2.0f / 15.0f, -1.0f / 3.0f})
    series = hn::MulAdd(series, square, hn::Set(d, c));
  const V near = hn::MulAdd(hn::Mul(series, square), x, x);
  return hn::IfThenElse(hn::Lt(magnitude, hn::Set(d, 0.35f)), near, far);
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
  const V one = hn::Set(d, 1.0f), magnitude = hn::Min(hn::Abs(x), hn::Set(d, 16.0f));
  const V t = hn::Div(one, hn::MulAdd(magnitude, hn::Set(d, 0.27f), one));
  const V p = polynomial(d, t,
                         {0.1077227585f, 0.1075070932f, 0.1020635491f, 0.07107758252f, 0.1100542173f, -0.07234456237f,
                          0.1724360972f, -0.1277225574f, 0.02920583342f});
  // e^(-x^2/2), with what rounding x^2 lost (known where multiply-add is one operation) put back to first order.
  const V half = hn::Set(d, 0.5f), square = hn::Mul(magnitude, magnitude);
  const V lost = hn::Mul(half, hn::MulSub(magnitude, magnitude, square));
  const V rough = exp(d, hn::Neg(hn::Mul(half, square))), decay = hn::NegMulAdd(rough, lost, rough);
  const V left = hn::Mul(decay, hn::Mul(t, p));
  const float inv_sqrt_2pi = std::numbers::inv_sqrtpi_v<float> / std::numbers::sqrt2_v<float>;
  return {hn::IfThenElse(hn::Lt(x, hn::Zero(d)), left, hn::Sub(one, left)), hn::Mul(decay, hn::Set(d, inv_sqrt_2pi))};
}

// --- for what is rounded to bf16, whose own relative error is 4e-3 ---

/// Whether results of type T are rounded more than the functions below err. Targets without lookups in registers take
/// those above.
template <class T>
inline constexpr bool kBrief = std::is_same_v<T, bf16_t>&& kTakesTwo;

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

/// 2^(x * scale) with a relative error of 4e-6, or 4e-7 with `kPrecise`; 1 for 0, NaN for NaN. With AVX2 abs(x * scale)
/// must be at most 126.
///
/// x * scale = n + r. AVX-512 takes r >= 0, and 2^n * q(r), in one instruction each. AVX2 rounds to n by an addition,
/// and adds n to the exponent of q(r).
template <bool kPrecise, class D, class V>
HWY_INLINE V brief_exp2(D d, V x, float scale) {
#if HWY_TARGET == HWY_AVX3
  constexpr int kBelow = 1;
  const V t = hn::Mul(x, hn::Set(d, scale)), r{_mm512_reduce_ps(t.raw, kBelow)};
  V q;
  if constexpr (kPrecise) {
    q = polynomial(d, r, {1, 0.6931513118f, 0.2401644501f, 0.05579991315f, 0.009017030284f, 0.001867130082f});
  } else {
    q = polynomial(d, r, {1, 0.6930448449f, 0.2412802047f, 0.05224247427f, 0.01342668425f});
  }
  return V{_mm512_scalef_ps(q.raw, t.raw)};
#else
  const hn::RebindToUnsigned<D> bits;
  const V bias = hn::Set(d, 12582912.0f);  // 1.5 * 2^23: the unit of its last place is 1
  const V shifted = hn::MulAdd(x, hn::Set(d, scale), bias),
          r = hn::MulSub(x, hn::Set(d, scale), hn::Sub(shifted, bias));
  V q;
  if constexpr (kPrecise) {
    q = polynomial(d, r, {1, 0.6931428306f, 0.2402235065f, 0.05557400469f, 0.009666282547f, 0.001112550926f});
  } else {
    q = polynomial(d, r, {1, 0.6931136044f, 0.2402071108f, 0.05597688363f, 0.009782912638f});
  }
  return hn::BitCast(d, hn::Add(hn::BitCast(bits, q), hn::ShiftLeft<23>(hn::BitCast(bits, shifted))));
#endif
}

/// The pieces and the degree of polynomials that a target looks up: two registers of 16 lanes, or one of 8.
inline constexpr int kPieces = HWY_TARGET == HWY_AVX3 ? 32 : 8;
template <int kDegreeOf32, int kDegreeOf8>
using Table = Piecewise<kPieces, HWY_TARGET == HWY_AVX3 ? kDegreeOf32 : kDegreeOf8>;

/// lanes[i] = values[index[i] mod kPieces].
template <class V, class I>
HWY_INLINE V look_up(const float (&values)[kPieces], I index) {
#if HWY_TARGET == HWY_AVX3
  return V{_mm512_permutex2var_ps(_mm512_load_ps(values), index.raw, _mm512_load_ps(values + 16))};
#else
  return V{_mm256_permutevar8x32_ps(_mm256_load_ps(values), index.raw)};
#endif
}

/// The tabulated function for t in [0, limit]; NaN for NaN.
template <class D, class V, int kDegree>
HWY_INLINE V evaluate(D d, const Piecewise<kPieces, kDegree>& table, V t) {
  const hn::RebindToSigned<D> bits;
  const V bias = hn::Set(d, 12582912.0f);  // 1.5 * 2^23: the piece lands in the last bits
  const auto piece = hn::BitCast(bits, hn::MulAdd(t, hn::Set(d, table.pieces_per_unit), bias));
  const V r = hn::Sub(t, hn::Set(d, table.origin));
  V p = look_up<V>(table.coefficient[kDegree], piece);
  for (int k = kDegree - 1; k >= 0; --k) p = hn::MulAdd(p, r, look_up<V>(table.coefficient[k], piece));
  return p;
}

#endif

}  // namespace nought::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
