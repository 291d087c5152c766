// Rounding vectors of fp32 to bf16 two at a time, and loops over tensors of bf16 that need no shuffles. Compiled once
// per target; simd-inl.h includes it.
//
// Two neighbouring vectors of bf16 are read as one vector of 32-bit lanes. The elements at even places are its lower
// halves, which a shift widens; those at odd places are its upper halves, which a mask widens. Stores put them together
// again. A loop whose elements are all bf16 takes its vectors so: the even elements of two vectors, then the odd ones.
#if defined(NOUGHT_KERNELS_CPU_BF16_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NOUGHT_KERNELS_CPU_BF16_INL_H_
#undef NOUGHT_KERNELS_CPU_BF16_INL_H_
#else
#define NOUGHT_KERNELS_CPU_BF16_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "nought/kernels/cpu/targets.h"
#include "nought/tensor/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace nought::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using F32 = hn::ScalableTag<float>;

/// Whether this target takes vectors of bf16 two at a time.
inline constexpr bool kTakesTwo = HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3;

using Bits32 = hn::RebindToUnsigned<F32>;

/// The elements at even places of two neighbouring vectors of bf16, widened.
template <class D>
HWY_INLINE hn::Vec<D> load_even(D d, const bf16_t* from) {
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::LoadU(Bits32(), reinterpret_cast<const uint32_t*>(from))));
}

/// The elements at odd places.
template <class D>
HWY_INLINE hn::Vec<D> load_odd(D d, const bf16_t* from) {
  const Bits32 bits;
  return hn::BitCast(d, hn::And(hn::LoadU(bits, reinterpret_cast<const uint32_t*>(from)), hn::Set(bits, 0xFFFF0000)));
}

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

/// Bits of which the upper halves are v rounded to nearest even; anything for NaN.
HWY_INLINE hn::Vec<Bits32> rounded_bits(hn::Vec<F32> v) {
  const Bits32 d;
  const auto bits = hn::BitCast(d, v), biased = hn::Add(bits, hn::Set(d, 0x7FFF));
#if HWY_TARGET == HWY_AVX3
  const __mmask16 is_odd = _mm512_test_epi32_mask(bits.raw, _mm512_set1_epi32(0x10000));
  return hn::Vec<Bits32>{_mm512_mask_add_epi32(biased.raw, is_odd, biased.raw, _mm512_set1_epi32(1))};
#else
  return hn::Add(biased, hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1)));
#endif
}

/// Rounds as above, but a tie goes away from zero, for a v that is not exact anyway: one addition. A NaN stays one if
/// the lower half of its bits is 0, as in all NaNs that arithmetic makes from bf16.
HWY_INLINE hn::Vec<Bits32> approximate_bits(hn::Vec<F32> v) {
  const Bits32 d;
  return hn::Add(hn::BitCast(d, v), hn::Set(d, 0x8000));
}

/// `rounded` where v is a number, else a quiet NaN in the upper half.
HWY_INLINE hn::Vec<Bits32> with_nan(hn::Vec<F32> v, hn::Vec<Bits32> rounded) {
  const Bits32 d;
  return hn::IfThenElse(hn::RebindMask(d, hn::IsNaN(v)), hn::Or(hn::BitCast(d, v), hn::Set(d, 0x400000)), rounded);
}

HWY_INLINE bool any_nan(hn::Vec<F32> a, hn::Vec<F32> b) {
#if HWY_TARGET == HWY_AVX3
  return _mm512_cmp_ps_mask(a.raw, b.raw, _CMP_UNORD_Q) != 0;
#else
  return _mm256_movemask_ps(_mm256_cmp_ps(a.raw, b.raw, _CMP_UNORD_Q)) != 0;
#endif
}

/// Two vectors of which the upper halves are bf16.
struct TwoRounded {
  hn::Vec<Bits32> first, second;

  /// NaN is rare: a branch that is not taken costs less than choosing between two results.
  static HWY_INLINE TwoRounded of(hn::Vec<F32> a, hn::Vec<F32> b) {
    TwoRounded rounded{rounded_bits(a), rounded_bits(b)};
    if (any_nan(a, b)) [[unlikely]]
      rounded = {with_nan(a, rounded.first), with_nan(b, rounded.second)};
    return rounded;
  }
  static HWY_INLINE TwoRounded of_approximate(hn::Vec<F32> a, hn::Vec<F32> b) {
    return {approximate_bits(a), approximate_bits(b)};
  }
  /// The elements of the first vector, then those of the second.
  HWY_INLINE void store_in_turn(bf16_t* to) const {
    const auto low = hn::ShiftRight<16>(first), high = hn::ShiftRight<16>(second);
    // The CPU packs within blocks of 128 bits, whose halves are then put in order.
#if HWY_TARGET == HWY_AVX3
    const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
    _mm512_storeu_si512(to, _mm512_permutexvar_epi64(order, _mm512_packus_epi32(low.raw, high.raw)));
#else
    const __m256i packed = _mm256_packus_epi32(low.raw, high.raw);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_permute4x64_epi64(packed, 0xD8));
#endif
  }
  /// The elements of both in alternation.
  HWY_INLINE void store_in_alternation(bf16_t* to) const {
    const auto low = hn::ShiftRight<16>(first);
#if HWY_TARGET == HWY_AVX3
    // Bit (second, mask, third) of the table says what their bits give: (second and mask) or third.
    constexpr int kSecondAndMaskOrThird = 0xEA;
    const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xFFFF0000));
    _mm512_storeu_si512(to, _mm512_ternarylogic_epi32(second.raw, upper, low.raw, kSecondAndMaskOrThird));
#else
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_blend_epi16(low.raw, second.raw, 0xAA));
#endif
  }
};

#if HWY_TARGET == HWY_AVX3

// AVX512-BF16, which Highway 1.0.3 does not know, rounds in one instruction, but flushes subnormal numbers.

template <class V>
HWY_INLINE __mmask16 subnormal_lanes(V v) {
  constexpr int kSubnormal = 0x20;
  return _mm512_fpclass_ps_mask(v.raw, kSubnormal);
}

HWY_INLINE bool converts(hn::Vec<F32> a, hn::Vec<F32> b) {
  return kConvertsToBf16 && _kortestz_mask16_u8(subnormal_lanes(a), subnormal_lanes(b)) != 0;
}

/// Two vectors rounded to bf16 by that instruction, one behind the other. Only where the CPU has it.
HWY_INLINE __m512i converted(hn::Vec<F32> first, hn::Vec<F32> second) {
  __m512i halves;
  asm("vcvtne2ps2bf16 %2, %1, %0" : "=v"(halves) : "v"(second.raw), "v"(first.raw));
  return halves;
}

#endif

/// Stores two vectors, one behind the other.
HWY_INLINE void store_two(hn::Vec<F32> first, hn::Vec<F32> second, bf16_t* to) {
#if HWY_TARGET == HWY_AVX3
  if (converts(first, second)) return _mm512_storeu_si512(to, converted(first, second));
#endif
  TwoRounded::of(first, second).store_in_turn(to);
}

/// Stores the elements at even places, and those at odd places.
HWY_INLINE void store_even_and_odd(hn::Vec<F32> even, hn::Vec<F32> odd, bf16_t* to) {
#if HWY_TARGET == HWY_AVX3
  if (converts(even, odd)) {
    const __m512i low =
        _mm512_setr_epi32(0x100000, 0x110001, 0x120002, 0x130003, 0x140004, 0x150005, 0x160006, 0x170007, 0x180008,
                          0x190009, 0x1A000A, 0x1B000B, 0x1C000C, 0x1D000D, 0x1E000E, 0x1F000F);
    return _mm512_storeu_si512(to, _mm512_permutexvar_epi16(low, converted(even, odd)));
  }
#endif
  TwoRounded::of(even, odd).store_in_alternation(to);
}

/// store_even_and_odd() for elements that are not exact. AVX-512 rounds to nearest even at hardly any cost.
HWY_INLINE void store_even_and_odd_approximate(hn::Vec<F32> even, hn::Vec<F32> odd, bf16_t* to) {
#if HWY_TARGET == HWY_AVX3
  store_even_and_odd(even, odd, to);
#else
  TwoRounded::of_approximate(even, odd).store_in_alternation(to);
#endif
}

/// What the first of two vectors stored as bf16, in the order of the stores: the second's go with it.
struct Held {
  static constexpr int kMost = 4;  // stores of one body
  hn::Vec<F32> stored[kMost];
  int first = 0, second = 0;
};

/// Access to the even, or the odd, elements of two neighbouring vectors of bf16 that start at one place.
template <bool kOdd>
struct Alternate {
  Held* held;

  template <class D>
  HWY_INLINE hn::Vec<D> load(D d, const bf16_t* from, float /*padding*/ = 0) const {
    if constexpr (kOdd) return load_odd(d, from);
    return load_even(d, from);
  }
  template <class D>
  HWY_INLINE void store(D /*d*/, hn::Vec<D> v, bf16_t* to) const {
    if constexpr (kOdd)
      store_even_and_odd(held->stored[held->second++], v, to);
    else
      held->stored[held->first++] = v;
  }
  template <class D>
  HWY_INLINE void store_approximate(D /*d*/, hn::Vec<D> v, bf16_t* to) const {
    if constexpr (kOdd)
      store_even_and_odd_approximate(held->stored[held->second++], v, to);
    else
      held->stored[held->first++] = v;
  }
  template <class D>
  HWY_INLINE hn::Vec<D> only(D /*d*/, hn::Vec<D> v) const {
    return v;
  }
  template <class T>
  HWY_INLINE void prefetch(const T* at) const {
    if constexpr (!kOdd) hwy::Prefetch(at);
  }
  template <class D>
  HWY_INLINE hn::Vec<D> load_sums(D d, const float* from) const {
    return hn::LoadU(d, from + (kOdd ? hn::Lanes(d) : 0));
  }
  template <class D>
  HWY_INLINE void store_sums(D d, hn::Vec<D> v, float* to) const {
    hn::StoreU(v, d, to + (kOdd ? hn::Lanes(d) : 0));
  }
};

#endif

}  // namespace nought::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
