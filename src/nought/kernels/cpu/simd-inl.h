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

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "nought/kernels/cpu/bf16-inl.h"
#include "nought/kernels/cpu/targets.h"
#include "nought/tensor/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace nought::cpu::HWY_NAMESPACE {

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
  const auto is_nan = hn::RebindMask(d32, hn::IsNaN(v));
  return hn::TruncateTo(d16, hn::IfThenElse(is_nan, quiet_nan, nearest_even));
}

template <class D>
HWY_INLINE void store(D d, hn::Vec<D> v, bf16_t* to) {
#if HWY_TARGET == HWY_AVX3
  if (kConvertsToBf16 && subnormal_lanes(v) == 0) {
    __m256i halves;
    asm("vcvtneps2bf16 %1, %0" : "=v"(halves) : "v"(v.raw));
    return _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), halves);
  }
#endif
  const hn::Rebind<uint16_t, D> d16;
  hn::StoreU(rounded_to_bf16(d, v), d16, reinterpret_cast<uint16_t*>(to));
}

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

/// store() of values that are not exact, so that it does not matter which way a tie goes.
template <class D, class T>
HWY_INLINE void store_approximate(D d, hn::Vec<D> v, T* to) {
#if HWY_TARGET == HWY_AVX2
  if constexpr (std::is_same_v<T, bf16_t>) {
    const hn::Rebind<uint16_t, D> d16;
    return hn::StoreU(hn::TruncateTo(d16, hn::ShiftRight<16>(approximate_bits(v))), d16,
                      reinterpret_cast<uint16_t*>(to));
  }
#endif
  store(d, v, to);
}

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const int8_t* from) {
  const hn::Rebind<int8_t, D> d8;
  const hn::Rebind<int32_t, D> d32;
  return hn::ConvertTo(d, hn::PromoteTo(d32, hn::LoadU(d8, from)));
}

#if HWY_TARGET != HWY_SCALAR

/// Transposes the 4 x 4 blocks of four vectors.
HWY_INLINE void transpose_blocks(hn::Vec<F32>* rows) {
  const F32 d;
  const hn::RepartitionToWide<F32> wide;
  const auto lower = [=](auto a, auto b) HWY_ATTR { return hn::BitCast(wide, hn::InterleaveLower(d, a, b)); };
  const auto upper = [=](auto a, auto b) HWY_ATTR { return hn::BitCast(wide, hn::InterleaveUpper(d, a, b)); };
  const auto first = lower(rows[0], rows[1]), second = lower(rows[2], rows[3]), third = upper(rows[0], rows[1]),
             fourth = upper(rows[2], rows[3]);
  rows[0] = hn::BitCast(d, hn::InterleaveLower(wide, first, second));
  rows[1] = hn::BitCast(d, hn::InterleaveUpper(wide, first, second));
  rows[2] = hn::BitCast(d, hn::InterleaveLower(wide, third, fourth));
  rows[3] = hn::BitCast(d, hn::InterleaveUpper(wide, third, fourth));
}

#endif

// --- whole and partial vectors behind one interface ---

/// What all accesses to lanes in their order share.
template <class Access>
struct InOrder {
  /// Sums of a column for each element, in the order that sweep_all() takes them; order_sums() puts them in place.
  template <class D>
  HWY_INLINE hn::Vec<D> load_sums(D d, const float* from) const {
    return static_cast<const Access&>(*this).load(d, from);
  }
  template <class D>
  HWY_INLINE void store_sums(D d, hn::Vec<D> v, float* to) const {
    static_cast<const Access&>(*this).store(d, v, to);
  }
  /// Asks for the cache line of an address, which need not be valid.
  template <class T>
  HWY_INLINE void prefetch(const T* at) const {
    hwy::Prefetch(at);
  }
};

/// Access to all lanes of a vector.
struct Whole : InOrder<Whole> {
  template <class D, class T>
  HWY_INLINE hn::Vec<D> load(D d, const T* from, float /*padding*/ = 0) const {
    return HWY_NAMESPACE::load(d, from);
  }
  template <class D, class T>
  HWY_INLINE void store(D d, hn::Vec<D> v, T* to) const {
    HWY_NAMESPACE::store(d, v, to);
  }
  template <class D, class T>
  HWY_INLINE void store_approximate(D d, hn::Vec<D> v, T* to) const {
    HWY_NAMESPACE::store_approximate(d, v, to);
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
struct Partial : InOrder<Partial> {
  size_t count;

  explicit HWY_INLINE Partial(size_t first) : count(first) {}
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
  template <class D, class T>
  HWY_INLINE void store_approximate(D d, hn::Vec<D> v, T* to) const {
    HWY_ALIGN T lanes[hn::MaxLanes(D())];
    HWY_NAMESPACE::store_approximate(d, v, lanes);
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

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3

/// Access to all lanes of the first, or second, of two neighbouring vectors of the same type in turn.
template <bool kSecond>
struct OfTwo : Whole {
  Held* held;

  using Whole::store;
  template <class D>
  HWY_INLINE void store(D d, hn::Vec<D> v, bf16_t* to) const {
    if constexpr (kSecond)
      store_two(held->stored[held->second++], v, to - hn::Lanes(d));
    else
      held->stored[held->first++] = v;
  }
};

/// Calls body(i, access) for two vectors at a time, and returns where the rest begins.
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
template <class D, class Body>
HWY_INLINE int64_t sweep_alternate(D d, int64_t begin, int64_t end, const Body& body) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = begin;
  for (; i + 2 * lanes <= end; i += 2 * lanes) {
    Held held;
    body(i, Alternate<false>{&held});
    body(i, Alternate<true>{&held});
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

/// to[0, count) = from, widened.
template <class T>
HWY_INLINE void widen(const T* from, int64_t count, float* to) {
  const F32 d;
  sweep(d, 0, count, [=](int64_t i, auto access) HWY_ATTR { access.store(d, access.load(d, from + i), to + i); });
}

/// Whether loops over elements of type T alone take even and odd elements apart.
template <class T>
inline constexpr bool kAlternates = kTakesTwo&& std::is_same_v<T, bf16_t>;

/// sweep() where all elements that the body loads or stores, but for its sums, are of type T. The vector of i may then
/// be the even or the odd elements of two vectors.
template <class T, class D, class Body>
HWY_INLINE void sweep_all(D d, int64_t begin, int64_t end, const Body& body) {
  if constexpr (kAlternates<T>) {
    begin = sweep_alternate(d, begin, end, body);
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    if (begin + lanes <= end) body(begin, Whole{}), begin += lanes;
    if (begin < end) body(begin, Partial{static_cast<size_t>(end - begin)});
  } else {
    sweep(d, begin, end, body);
  }
}

/// Puts the sums [n] that bodies of sweep_all<T>(d, 0, n, body) have stored into the order of their elements.
template <class T, class D>
HWY_INLINE void order_sums([[maybe_unused]] D d, [[maybe_unused]] int64_t n, [[maybe_unused]] float* sums) {
  if constexpr (kAlternates<T>) {
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    for (int64_t i = 0; i + 2 * lanes <= n; i += 2 * lanes) {
      const auto even = hn::LoadU(d, sums + i), odd = hn::LoadU(d, sums + i + lanes);
      hn::StoreInterleaved2(even, odd, d, sums + i);
    }
  }
}

/// Calls f with std::integral_constant<int, count>, 1 <= count <= most.
template <int most, class F>
HWY_INLINE void with_count(int64_t count, const F& f) {
  if constexpr (most > 1) {
    if (count < most) return with_count<most - 1>(count, f);
  }
  f(std::integral_constant<int, most>());
}

/// Four running values, so that a reduction does not wait for the latency of each addition.
template <class Running>
struct Four {
  Running part0, part1, part2, part3;
};

template <class D>
struct Lanes4 : Four<hn::Vec<D>> {
  HWY_INLINE Lanes4(D d, hn::TFromD<D> value) {
    this->part0 = this->part1 = this->part2 = this->part3 = hn::Set(d, value);
  }
  HWY_INLINE hn::TFromD<D> sum(D d) const {
    return hn::GetLane(
        hn::SumOfLanes(d, hn::Add(hn::Add(this->part0, this->part1), hn::Add(this->part2, this->part3))));
  }
  HWY_INLINE hn::TFromD<D> max(D d) const {
    return hn::GetLane(
        hn::MaxOfLanes(d, hn::Max(hn::Max(this->part0, this->part1), hn::Max(this->part2, this->part3))));
  }
};

/// Calls body(i, access, running) over [begin, end), where the running value alternates among those of `parts`.
template <class D, class Running, class Body>
HWY_INLINE void reduce(D d, int64_t begin, int64_t end, Four<Running>& parts, const Body& body) {
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

/// reduce() where all elements that the body loads are of type T. It takes them as sweep_all() does.
template <class T, class D, class Running, class Body>
HWY_INLINE void reduce_all(D d, int64_t begin, int64_t end, Four<Running>& parts, const Body& body) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  if constexpr (kAlternates<T>) {
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    for (; begin + 4 * lanes <= end; begin += 4 * lanes) {
      body(begin, Alternate<false>{nullptr}, parts.part0);  // bodies of a reduction store nothing
      body(begin, Alternate<true>{nullptr}, parts.part1);
      body(begin + 2 * lanes, Alternate<false>{nullptr}, parts.part2);
      body(begin + 2 * lanes, Alternate<true>{nullptr}, parts.part3);
    }
    if (begin + 2 * lanes <= end) {
      body(begin, Alternate<false>{nullptr}, parts.part0);
      body(begin, Alternate<true>{nullptr}, parts.part1);
      begin += 2 * lanes;
    }
  }
#endif
  reduce(d, begin, end, parts, body);
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
