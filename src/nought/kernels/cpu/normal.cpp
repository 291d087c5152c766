#include "nought/kernels/normal.h"

#include "nought/kernels/cpu/parallel.h"
#include "nought/kernels/cpu/targets.h"
#include "nought/tensor/random.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nought/kernels/cpu/normal.cpp"
#include <hwy/foreach_target.h>

#include "nought/kernels/cpu/philox-inl.h"
#include "nought/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nought::cpu::HWY_NAMESPACE {

#if HWY_TARGET != HWY_SCALAR

using F64 = hn::ScalableTag<double>;
using VF = hn::Vec<F64>;
using VU = hn::Vec<U64>;

/// An integer below 2^52 as a number: exact.
HWY_INLINE VF as_number(VU integer) {
  const F64 d;
  const VF bias = hn::Set(d, 0x1p52);
  return hn::Sub(hn::BitCast(d, hn::Or(integer, hn::BitCast(U64(), bias))), bias);
}

/// to_unit(): exact.
HWY_INLINE VF unit_of(VU word) {
  const F64 d;
  const VF lower = as_number(hn::And(word, hn::Set(U64(), 0xFFFFFFFFu)));
  return hn::Mul(hn::Add(lower, hn::Set(d, 1.0)), hn::Set(d, 0x1p-32));
}

/// log(u) for u in [2^-32, 1], to a few units in the last place: u = 2^e m with m in [sqrt(1/2), sqrt(2)), and log(m)
/// = 2 artanh((m - 1) / (m + 1)) by its series.
HWY_INLINE VF log_of(VF u) {
  const F64 d;
  const U64 du;
  const VF one = hn::Set(d, 1.0), half = hn::Set(d, 0.5);
  const VU bits = hn::BitCast(du, u);
  const VU mantissa = hn::And(bits, hn::Set(du, (uint64_t{1} << 52) - 1));
  VF m = hn::BitCast(d, hn::Or(mantissa, hn::BitCast(du, one)));
  const auto large = hn::Gt(m, hn::Set(d, std::numbers::sqrt2));
  m = hn::IfThenElse(large, hn::Mul(m, half), m);
  VF e = hn::Sub(as_number(hn::ShiftRight<52>(bits)), hn::Set(d, 1023.0));
  e = hn::IfThenElse(large, hn::Add(e, one), e);
  const VF s = hn::Div(hn::Sub(m, one), hn::Add(m, one)), square = hn::Mul(s, s);
  VF series = hn::Set(d, 1.0 / 23);
  for (int odd = 21; odd > 1; odd -= 2) series = hn::MulAdd(series, square, hn::Set(d, 1.0 / odd));
  const VF twice = hn::Add(s, s);
  const VF rest = hn::MulAdd(hn::Mul(twice, square), series, twice);         // 2 (s + s^3 / 3 + ...)
  const double upper = 0x1.62e42fefap-1, lower = std::numbers::ln2 - upper;  // ln 2; e * upper is exact
  return hn::MulAdd(e, hn::Set(d, upper), hn::MulAdd(e, hn::Set(d, lower), rest));
}

/// cos(x) for x in [0, 2 pi], to a few units in the last place, also near its zeros: x less k pi / 2, exact but for the
/// second part of pi, goes into the series of cos or sin.
HWY_INLINE VF cos_of(VF x) {
  const F64 d;
  const VF upper = hn::Set(d, std::numbers::pi / 2), lower = hn::Set(d, 6.123233995736766e-17);
  const VF k = hn::Round(hn::Mul(x, hn::Set(d, 2 / std::numbers::pi)));
  const VF half_k = hn::Floor(hn::Mul(k, hn::Set(d, 0.5))), even = hn::Add(half_k, half_k), odd = hn::Sub(k, even);
  const VF r = hn::NegMulAdd(k, lower, hn::NegMulAdd(odd, upper, hn::NegMulAdd(even, upper, x)));
  const VF square = hn::Mul(r, r);
  double factorial = 1.0 / 355687428096000.0;  // 1 / 17!
  VF sine = hn::Set(d, factorial), cosine = hn::Set(d, factorial * 17);
  for (int n = 16; n > 2; n -= 2) {  // the terms of r^(n - 1) and r^(n - 2)
    factorial *= (n + 1) * n;        // 1 / (n - 1)!
    const double sign = n % 4 == 0 ? -1 : 1;
    sine = hn::MulAdd(sine, square, hn::Set(d, sign * factorial));
    cosine = hn::MulAdd(cosine, square, hn::Set(d, sign * factorial * (n - 1)));
  }
  sine = hn::MulAdd(hn::Mul(sine, square), r, r);
  cosine = hn::MulAdd(cosine, square, hn::Set(d, 1.0));
  // cos(r + k pi/2): cos, -sin, -cos, sin and cos again.
  const auto is_odd = hn::Gt(odd, hn::Set(d, 0.5));
  const VF quarter = hn::Floor(hn::Mul(hn::Add(k, hn::Set(d, 1.0)), hn::Set(d, 0.5)));  // 0, 1, 1, 2, 2
  const auto negative = hn::Eq(quarter, hn::Set(d, 1.0));
  const VF value = hn::IfThenElse(is_odd, sine, cosine);
  return hn::IfThenElse(negative, hn::Neg(value), value);
}

/// The normal value that two words make.
HWY_INLINE VF normal_of(VU radius, VU angle) {
  const F64 d;
  const VF root = hn::Sqrt(hn::Mul(hn::Set(d, -2.0), log_of(unit_of(radius))));
  return hn::Mul(root, cos_of(hn::Mul(hn::Set(d, 2.0 * std::numbers::pi), unit_of(angle))));
}

/// Where a value may round to another fp32 than the libraries' functions give: within 128 units in its last place of
/// the middle of two, as both err by less than 16, or where fp32 is subnormal.
HWY_INLINE hn::Mask<F64> is_doubtful(VF value) {
  const F64 d;
  const U64 du;
  constexpr uint64_t kLost = (uint64_t{1} << 29) - 1, kMiddle = uint64_t{1} << 28, kMargin = 128;
  const VU distance = hn::Sub(hn::And(hn::BitCast(du, value), hn::Set(du, kLost)), hn::Set(du, kMiddle - kMargin));
  const auto near = hn::Lt(hn::ShiftRight<8>(distance), hn::Set(du, 1));  // 0 <= distance < 2 kMargin
  return hn::Or(hn::RebindMask(d, near), hn::Lt(hn::Abs(value), hn::Set(d, 0x1p-125)));
}

/// out[i] = std * normal_at(key, 2 counter + i) for the two values of each of `Lanes` counters.
HWY_INLINE void normal_block(uint64_t key, uint64_t counter, double std, float* HWY_RESTRICT out) {
  const F64 d;
  const hn::Rebind<float, F64> df;
  const Words w = philox_lanes(key, hn::Iota(U64(), counter), 0);
  const VF factor = hn::Set(d, std);
  const VF even = hn::Mul(factor, normal_of(w.w0, w.w1)), odd = hn::Mul(factor, normal_of(w.w2, w.w3));
  const size_t lanes = hn::Lanes(d);
  HWY_ALIGN float evens[hn::MaxLanes(F64())], odds[hn::MaxLanes(F64())];
  hn::StoreU(hn::DemoteTo(df, even), df, evens);
  hn::StoreU(hn::DemoteTo(df, odd), df, odds);
  for (size_t i = 0; i < lanes; ++i) out[2 * i] = evens[i], out[2 * i + 1] = odds[i];
  if (hn::AllFalse(d, hn::Or(is_doubtful(even), is_doubtful(odd)))) return;
  for (size_t i = 0; i < 2 * lanes; ++i) out[i] = static_cast<float>(std * normal_at(key, 2 * counter + i));
}

#endif

/// Values [first, first + count) of the key.
void normal_values(uint64_t key, int64_t first, int64_t count, double std, float* out) {
  int64_t i = 0;
  const auto alone = [&] { out[i] = static_cast<float>(std * normal_at(key, static_cast<uint64_t>(first + i))); };
#if HWY_TARGET != HWY_SCALAR
  const int64_t block = 2 * static_cast<int64_t>(hn::Lanes(F64()));
  if (count > 0 && first % 2 == 1) alone(), ++i;
  for (; i + block <= count; i += block) normal_block(key, static_cast<uint64_t>(first + i) / 2, std, out + i);
#endif
  for (; i < count; ++i) alone();
}

}  // namespace nought::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nought::cpu {
HWY_EXPORT(normal_values);
}

namespace nought {

void fill_normal(const Tensor& x, uint64_t key, int64_t first, double std) {
  using namespace cpu;
  visit_float(x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* out = x.data<T>();
    parallel_elements(x.numel(), [&](int64_t begin, int64_t end) {
      constexpr int64_t kChunk = 1024;
      float values[kChunk];
      for (int64_t i = begin; i < end; i += kChunk) {
        const int64_t count = std::min(kChunk, end - i);
        HWY_DYNAMIC_DISPATCH(normal_values)(key, first + i, count, std, values);
        for (int64_t j = 0; j < count; ++j) out[i + j] = T(values[j]);
      }
    });
  });
}

}  // namespace nought
#endif
