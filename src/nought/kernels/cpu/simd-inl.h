// Vectors of fp32 loaded from and stored to any of the CPU dtypes, and loops over them: compiled once per target.
//
// A 16-bit float is widened on load and rounded to nearest even on store (Highway 1.0.3 truncates to bf16, and without
// F16C also to f16). The last, partial vector of a range goes through the same arithmetic as the others, so a result
// does not depend on where a range ends; bytes outside of the range are neither read nor written.
#if defined(NOUGHT_KERNELS_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NOUGHT_KERNELS_CPU_SIMD_INL_H_
#undef NOUGHT_KERNELS_CPU_SIMD_INL_H_
#else
#define NOUGHT_KERNELS_CPU_SIMD_INL_H_
#endif

#include <bit>
#include <cstring>
#include <type_traits>

#include <hwy/highway.h>

#include "nought/kernels/cpu/targets.h"
#include "nought/tensor/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace nought::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using F32 = hn::ScalableTag<float>;

// --- whole vectors ---

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const float* from) {
  return hn::LoadU(d, from);
}

template <class D>
HWY_INLINE void store(D d, hn::Vec<D> v, float* to) {
  hn::StoreU(v, d, to);
}

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const bf16_t* from) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::Rebind<uint32_t, D> d32;
  const auto bits = hn::PromoteTo(d32, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(from)));
  return hn::BitCast(d, hn::ShiftLeft<16>(bits));
}

template <class D>
HWY_INLINE auto rounded_to_bf16(D /*d*/, hn::Vec<D> v) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::Rebind<uint32_t, D> d32;
  const auto bits = hn::BitCast(d32, v);
  const auto upper = hn::ShiftRight<16>(bits);
  const auto is_odd = hn::And(upper, hn::Set(d32, 1));
  const auto nearest_even = hn::ShiftRight<16>(hn::Add(bits, hn::Add(is_odd, hn::Set(d32, 0x7FFF))));
  const auto quiet_nan = hn::Or(upper, hn::Set(d32, 0x40));
  const auto is_nan = hn::RebindMask(d32, hn::Ne(v, v));
  return hn::TruncateTo(d16, hn::IfThenElse(is_nan, quiet_nan, nearest_even));
}

#if HWY_TARGET == HWY_AVX3

// AVX512-BF16, which Highway 1.0.3 does not know, rounds in one instruction, but flushes subnormal numbers.

template <class V>
HWY_INLINE __mmask16 subnormal_lanes(V v) {
  constexpr int kSubnormal = 0x20;
  return _mm512_fpclass_ps_mask(v.raw, kSubnormal);
}

template <class D>
HWY_INLINE void store(D d, hn::Vec<D> v, bf16_t* to) {
  __m256i halves;
  if (kConvertsToBf16 && subnormal_lanes(v) == 0) {
    asm("vcvtneps2bf16 %1, %0" : "=v"(halves) : "v"(v.raw));
  } else {
    halves = rounded_to_bf16(d, v).raw;
  }
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), halves);
}

/// Stores two vectors, one behind the other.
template <class D>
HWY_INLINE void store_two(D d, hn::Vec<D> first, hn::Vec<D> second, bf16_t* to) {
  if (kConvertsToBf16 && _kortestz_mask16_u8(subnormal_lanes(first), subnormal_lanes(second)) != 0) {
    __m512i halves;
    asm("vcvtne2ps2bf16 %2, %1, %0" : "=v"(halves) : "v"(second.raw), "v"(first.raw));
    _mm512_storeu_si512(to, halves);
  } else {
    store(d, first, to);
    store(d, second, to + hn::Lanes(d));
  }
}

#else

template <class D>
HWY_INLINE void store(D d, hn::Vec<D> v, bf16_t* to) {
  const hn::Rebind<uint16_t, D> d16;
  hn::StoreU(rounded_to_bf16(d, v), d16, reinterpret_cast<uint16_t*>(to));
}

#endif

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL  // the sets that have F16C

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const f16_t* from) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::Rebind<hwy::float16_t, D> df16;
  return hn::PromoteTo(d, hn::BitCast(df16, hn::LoadU(d16, reinterpret_cast<const uint16_t*>(from))));
}

template <class D>
HWY_INLINE void store(D d, hn::Vec<D> v, f16_t* to) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::Rebind<hwy::float16_t, D> df16;
  hn::StoreU(hn::BitCast(d16, hn::DemoteTo(df16, v)), d16, reinterpret_cast<uint16_t*>(to));
}

#else

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const f16_t* from) {
  HWY_ALIGN float lanes[hn::MaxLanes(D())];
  for (size_t i = 0; i < hn::Lanes(d); ++i) lanes[i] = from[i];
  return hn::Load(d, lanes);
}

template <class D>
HWY_INLINE void store(D d, hn::Vec<D> v, f16_t* to) {
  HWY_ALIGN float lanes[hn::MaxLanes(D())];
  hn::Store(v, d, lanes);
  for (size_t i = 0; i < hn::Lanes(d); ++i) to[i] = f16_t(lanes[i]);
}

#endif

// --- whole and partial vectors behind one interface ---

/// Access to all lanes of a vector.
struct Whole {
  template <class D, class T>
  HWY_INLINE hn::Vec<D> load(D d, const T* from, float /*padding*/ = 0) const {
    return HWY_NAMESPACE::load(d, from);
  }
  template <class D, class T>
  HWY_INLINE void store(D d, hn::Vec<D> v, T* to) const {
    HWY_NAMESPACE::store(d, v, to);
  }
  /// v with 0 in the lanes that are not accessed.
  template <class D>
  HWY_INLINE hn::Vec<D> only(D /*d*/, hn::Vec<D> v) const {
    return v;
  }
  template <class D>
  HWY_INLINE size_t lanes(D d) const {
    return hn::Lanes(d);
  }
};

#if HWY_TARGET == HWY_AVX3

template <class T>
using BitsOf = std::conditional_t<sizeof(T) == 2, uint16_t, uint32_t>;

/// Loads and stores that touch the first `count` lanes alone cost as much as whole ones.
template <class D, class T>
HWY_INLINE void copy_first(D /*d*/, const T* from, size_t count, T padding, T* lanes) {
  using Bits = BitsOf<T>;
  const hn::Rebind<Bits, D> bits;
  const auto there = hn::FirstN(bits, count);
  const auto values = hn::MaskedLoad(there, bits, reinterpret_cast<const Bits*>(from));
  hn::Store(hn::IfThenElse(there, values, hn::Set(bits, std::bit_cast<Bits>(padding))), bits,
            reinterpret_cast<Bits*>(lanes));
}
template <class D, class T>
HWY_INLINE void store_first(D /*d*/, const T* lanes, size_t count, T* to) {
  using Bits = BitsOf<T>;
  const hn::Rebind<Bits, D> bits;
  hn::BlendedStore(hn::Load(bits, reinterpret_cast<const Bits*>(lanes)), hn::FirstN(bits, count), bits,
                   reinterpret_cast<Bits*>(to));
}

#else

template <class D, class T>
HWY_INLINE void copy_first(D d, const T* from, size_t count, T padding, T* lanes) {
  for (size_t i = count; i < hn::Lanes(d); ++i) lanes[i] = padding;
  std::memcpy(lanes, from, count * sizeof(T));
}
template <class D, class T>
HWY_INLINE void store_first(D /*d*/, const T* lanes, size_t count, T* to) {
  std::memcpy(to, lanes, count * sizeof(T));
}

#endif

/// Access to the first `count` lanes, the others being `padding`.
struct Partial {
  size_t count;

  template <class D, class T>
  HWY_INLINE hn::Vec<D> load(D d, const T* from, float padding = 0) const {
    HWY_ALIGN T lanes[hn::MaxLanes(D())];
    copy_first(d, from, count, T(padding), lanes);
    return HWY_NAMESPACE::load(d, lanes);
  }
  template <class D, class T>
  HWY_INLINE void store(D d, hn::Vec<D> v, T* to) const {
    HWY_ALIGN T lanes[hn::MaxLanes(D())];
    HWY_NAMESPACE::store(d, v, lanes);
    store_first(d, lanes, count, to);
  }
  template <class D>
  HWY_INLINE hn::Vec<D> only(D d, hn::Vec<D> v) const {
    return hn::IfThenElseZero(hn::FirstN(d, count), v);
  }
  template <class D>
  HWY_INLINE size_t lanes(D /*d*/) const {
    return count;
  }
};

#if HWY_TARGET == HWY_AVX3

/// What the first of two neighbouring vectors stored as bf16, in the order of the stores: the second's go with it.
struct Held {
  static constexpr int kMost = 4;  // stores of one body
  hn::Vec<F32> stored[kMost];
  int first = 0, second = 0;
};

/// Access to all lanes of the first, or second, of two neighbouring vectors of the same type in turn.
template <bool kSecond>
struct OfTwo : Whole {
  Held* held;

  using Whole::store;
  template <class D>
  HWY_INLINE void store(D d, hn::Vec<D> v, bf16_t* to) const {
    if constexpr (kSecond)
      store_two(d, held->stored[held->second++], v, to - hn::Lanes(d));
    else
      held->stored[held->first++] = v;
  }
};

template <class D, class Body>
HWY_INLINE int64_t sweep_twos(D d, int64_t begin, int64_t end, const Body& body) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = begin;
  for (; i + 2 * lanes <= end; i += 2 * lanes) {
    Held held;
    body(i, OfTwo<false>{{}, &held});
    body(i + lanes, OfTwo<true>{{}, &held});
  }
  return i;
}

#else

template <class D, class Body>
HWY_INLINE int64_t sweep_twos(D /*d*/, int64_t begin, int64_t /*end*/, const Body& /*body*/) {
  return begin;
}

#endif

/// Calls body(i, access) for every vector that starts at element i of [begin, end). What a body reads of an element may
/// not depend on what it stored to another.
template <class D, class Body>
HWY_INLINE void sweep(D d, int64_t begin, int64_t end, const Body& body) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = sweep_twos(d, begin, end, body);
  for (; i + lanes <= end; i += lanes) body(i, Whole{});
  if (i < end) body(i, Partial{static_cast<size_t>(end - i)});
}

/// Four running vectors, so that a reduction does not wait for the latency of each addition.
template <class D>
struct Lanes4 {
  hn::Vec<D> part0, part1, part2, part3;

  HWY_INLINE Lanes4(D d, hn::TFromD<D> value) : part0(hn::Set(d, value)), part1(part0), part2(part0), part3(part0) {}
  HWY_INLINE hn::TFromD<D> sum(D d) const {
    return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(part0, part1), hn::Add(part2, part3))));
  }
  HWY_INLINE hn::TFromD<D> max(D d) const {
    return hn::GetLane(hn::MaxOfLanes(d, hn::Max(hn::Max(part0, part1), hn::Max(part2, part3))));
  }
};

/// Calls body(i, access, running) over [begin, end), where the running vector alternates among those of `parts`.
template <class D, class Body>
HWY_INLINE void reduce(D d, int64_t begin, int64_t end, Lanes4<D>& parts, const Body& body) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = begin;
  for (; i + 4 * lanes <= end; i += 4 * lanes) {
    body(i, Whole{}, parts.part0);
    body(i + lanes, Whole{}, parts.part1);
    body(i + 2 * lanes, Whole{}, parts.part2);
    body(i + 3 * lanes, Whole{}, parts.part3);
  }
  for (; i + lanes <= end; i += lanes) body(i, Whole{}, parts.part0);
  if (i < end) body(i, Partial{static_cast<size_t>(end - i)}, parts.part1);
}

/// Calls f(TypeTag<T>{}) with the C++ type of a dtype that the CPU kernels compute in themselves.
template <class F>
HWY_INLINE void visit(DType dtype, const F& f) {
  switch (dtype) {
    case DType::f32:
      return f(TypeTag<float>{});
    case DType::bf16:
      return f(TypeTag<bf16_t>{});
    case DType::f16:
      return f(TypeTag<f16_t>{});
    default:
      return;  // f64 went to the reference, integers failed their check
  }
}

}  // namespace nought::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
