// The codes of EncodeHeads as words and vectors of fp32, for attention. This file is compiled once per target.
//
// A code is a number that fp32 holds exactly, and attention multiplies codes as such: what it has to multiply by their
// scales are scores and weights, of which there are fewer.
#if defined(NOUGHT_KERNELS_CPU_HEAD_CODES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef NOUGHT_KERNELS_CPU_HEAD_CODES_INL_H_
#undef NOUGHT_KERNELS_CPU_HEAD_CODES_INL_H_
#else
#define NOUGHT_KERNELS_CPU_HEAD_CODES_INL_H_
#endif

#include "nought/kernels/cpu/words-inl.h"
#include "nought/kernels/head_codes.h"

HWY_BEFORE_NAMESPACE();
namespace nought::cpu::HWY_NAMESPACE {

/// The numbers that codes stand for, which lie in the upper byte of each lane: what the other bytes hold is left out.
HWY_INLINE FloatVector upper_codes(hn::VFromD<Bits32> bytes, int8_t /*code*/) {
  const hn::RebindToSigned<F32> integers;
  return hn::ConvertTo(F32(), hn::ShiftRight<24>(hn::BitCast(integers, bytes)));
}
/// Exponent and mantissa of E4M3 are those of fp32 but for the bias, also of numbers that are subnormal.
HWY_INLINE FloatVector upper_codes(hn::VFromD<Bits32> bytes, e4m3_t /*code*/) {
  const F32 d;
  const Bits32 bits;
  const auto sign = hn::And(bytes, hn::Set(bits, 0x80000000u));
  const auto magnitude = hn::ShiftRight<4>(hn::And(bytes, hn::Set(bits, 0x7F000000u)));
  return hn::Mul(hn::BitCast(d, hn::Or(sign, magnitude)), hn::Set(d, 0x1p120f));
}

/// Four codes in a word.
template <class Code>
struct CodeWords {
  using Element = Code;
  static constexpr int64_t kElements = 4, kFactors = 4;
  static constexpr bool kDotted = false;

  static HWY_INLINE FloatVector load(const Code* from, Whole /*access*/) {
    return hn::LoadU(F32(), reinterpret_cast<const float*>(from));
  }
  /// The first elements of a vector of words; the others are 0.
  static HWY_INLINE FloatVector load(const Code* from, Partial access) {
    HWY_ALIGN Code elements[4 * hn::MaxLanes(F32())] = {};
    std::memcpy(elements, from, access.count * sizeof(Code));
    return hn::Load(F32(), reinterpret_cast<const float*>(elements));
  }
  static HWY_INLINE FloatVector add(FloatVector sum, const float* factors, FloatVector word) {
    const F32 d;
    const auto bytes = hn::BitCast(Bits32(), word);
    sum = Fma::add(sum, hn::Set(d, factors[0]), upper_codes(hn::ShiftLeft<24>(bytes), Code{}));
    sum = Fma::add(sum, hn::Set(d, factors[1]), upper_codes(hn::ShiftLeft<16>(bytes), Code{}));
    sum = Fma::add(sum, hn::Set(d, factors[2]), upper_codes(hn::ShiftLeft<8>(bytes), Code{}));
    return Fma::add(sum, hn::Set(d, factors[3]), upper_codes(bytes, Code{}));
  }
};

/// Codes that are widened: a word is an element.
template <class Code>
struct WideCodes {
  using Element = Code;
  static constexpr int64_t kElements = 1;

  static HWY_INLINE FloatVector load(const Code* from, Whole /*access*/) {
    if constexpr (std::is_same_v<Code, int8_t>) {
      const hn::RebindToSigned<F32> integers;
      return hn::ConvertTo(F32(), hn::PromoteTo(integers, hn::LoadU(hn::Rebind<int8_t, F32>(), from)));
    } else {
      const hn::Rebind<uint8_t, F32> bytes;
      const auto codes = hn::PromoteTo(Bits32(), hn::LoadU(bytes, reinterpret_cast<const uint8_t*>(from)));
      return upper_codes(hn::ShiftLeft<24>(codes), Code{});
    }
  }
  static HWY_INLINE FloatVector load(const Code* from, Partial access) {
    HWY_ALIGN Code elements[hn::MaxLanes(F32())] = {};
    std::memcpy(elements, from, access.count * sizeof(Code));
    return load(elements, Whole{});
  }
  template <class Access>
  static HWY_INLINE FloatVector load_rows(const Code* from, int64_t /*stride*/, bool /*has_second*/, Access access) {
    return load(from, access);
  }
  static HWY_INLINE FloatVector add(FloatVector sum, const float* factors, FloatVector word) {
    return Fma::add(sum, hn::Set(F32(), *factors), word);
  }
};

using Int32Vector = hn::VFromD<hn::RebindToSigned<F32>>;

#if HWY_TARGET == HWY_SCALAR

/// The product of a query with one key.
inline Int32Vector dot_codes(const int16_t* query, const int8_t* keys, int64_t /*stride*/, int64_t /*count*/,
                             int64_t head_dim) {
  int32_t sum = 0;
  for (int64_t i = 0; i < head_dim; ++i) sum += int32_t{query[i]} * int32_t{keys[i]};
  return hn::Set(hn::RebindToSigned<F32>(), sum);
}

#else

/// The products of a query with lanes() keys, of which `count` are there; the others are like the last. Behind head_dim
/// the query has zeros up to a whole vector.
HWY_INLINE Int32Vector dot_codes(const int16_t* query, const int8_t* keys, int64_t stride, int64_t count,
                                 int64_t head_dim) {
  constexpr int kKeys = hn::MaxLanes(F32());
  const hn::RebindToSigned<F32> sums_of;
  const hn::Repartition<int16_t, decltype(sums_of)> pairs;
  const hn::Rebind<int8_t, decltype(pairs)> bytes;
  const auto step = static_cast<int64_t>(hn::Lanes(pairs));
  Int32Vector sums[kKeys];
  const int8_t* at[kKeys];
#pragma GCC unroll 16
  for (int k = 0; k < kKeys; ++k) sums[k] = hn::Zero(sums_of), at[k] = keys + std::min<int64_t>(k, count - 1) * stride;
  const auto add = [&](auto factors, auto codes, Int32Vector& sum) HWY_ATTR {
    auto rest = hn::Zero(sums_of);  // stays so where one vector takes both products of a pair
    sum = hn::ReorderWidenMulAccumulate(sums_of, factors, hn::PromoteTo(pairs, codes), sum, rest);
    sum = hn::Add(sum, rest);
  };
  int64_t i = 0;
  for (; i + step <= head_dim; i += step) {
    const auto factors = hn::LoadU(pairs, query + i);
#pragma GCC unroll 16
    for (int k = 0; k < kKeys; ++k) add(factors, hn::LoadU(bytes, at[k] + i), sums[k]);
  }
  if (i < head_dim) {
    const auto factors = hn::LoadU(pairs, query + i);
    for (int k = 0; k < kKeys; ++k) {
      HWY_ALIGN int8_t codes[hn::MaxLanes(hn::Repartition<int16_t, hn::RebindToSigned<F32>>())] = {};
      std::memcpy(codes, at[k] + i, static_cast<size_t>(head_dim - i));
      add(factors, hn::Load(bytes, codes), sums[k]);
    }
  }
  const F32 d;
  FloatVector words[kKeys];
  for (int k = 0; k < kKeys; ++k) words[k] = hn::BitCast(d, sums[k]);
  transpose_words(words);
  auto all = hn::BitCast(sums_of, words[0]);
#pragma GCC unroll 16
  for (int k = 1; k < kKeys; ++k) all = hn::Add(all, hn::BitCast(sums_of, words[k]));
  return all;
}

#endif

/// to[0, count) = the numbers that codes stand for.
template <class Code>
HWY_INLINE void load_codes(const Code* from, int64_t count, float* to) {
  const F32 d;
  int64_t i = 0;
  for (; i + lanes() <= count; i += lanes()) hn::StoreU(WideCodes<Code>::load(from + i, Whole{}), d, to + i);
  if (i < count)
    Partial{static_cast<size_t>(count - i)}.store(
        d, WideCodes<Code>::load(from + i, Partial{static_cast<size_t>(count - i)}), to + i);
}

}  // namespace nought::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
