// The codes of blocks as bytes, in registers. Included for each instruction set, by files with foreach_target.h.
#if defined(NOUGHT_KERNELS_CPU_BLOCKS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef NOUGHT_KERNELS_CPU_BLOCKS_INL_H
#undef NOUGHT_KERNELS_CPU_BLOCKS_INL_H
#else
#define NOUGHT_KERNELS_CPU_BLOCKS_INL_H
#endif

#include <array>
#include <cstring>

#include "nought/io/gguf_blocks.h"
#include "nought/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nought::cpu::HWY_NAMESPACE {

constexpr int64_t kMostOfBlock = 256;  // elements of a block of GGUF
constexpr int64_t kRoom = kMostOfBlock + 64;

#if HWY_TARGET != HWY_SCALAR

using Bytes = hn::FixedTag<uint8_t, 16>;
using Codes = hn::FixedTag<int8_t, 16>;
using ByteVector = hn::Vec<Bytes>;

HWY_INLINE ByteVector bytes_at(const std::byte* from) {
  return hn::LoadU(Bytes(), reinterpret_cast<const uint8_t*>(from));
}
HWY_INLINE ByteVector low(ByteVector both) { return hn::And(both, hn::Set(Bytes(), 15)); }
HWY_INLINE ByteVector high(ByteVector both) { return hn::ShiftRight<4>(both); }
/// `value` in the lanes whose bit is set.
HWY_INLINE ByteVector where_bit(ByteVector bits, int bit, uint8_t value) {
  const Bytes d;
  return hn::IfThenElseZero(hn::TestBit(bits, hn::Set(d, static_cast<uint8_t>(1 << bit))), hn::Set(d, value));
}
HWY_INLINE void keep(ByteVector codes, int bias, int8_t* to) {
  const Codes d;
  hn::StoreU(hn::Sub(hn::BitCast(d, codes), hn::Set(d, static_cast<int8_t>(bias))), d, to);
}

/// Sixteen bytes of nibbles: the low ones are the first half of 32 elements.
HWY_INLINE void unpack_nibbles(const std::byte* from, int bias, int8_t* codes) {
  const ByteVector both = bytes_at(from);
  keep(low(both), bias, codes), keep(high(both), bias, codes + 16);
}
HWY_INLINE void look_up_nibbles(const std::byte* from, const std::array<int8_t, 16>& table, int8_t* codes) {
  const ByteVector both = bytes_at(from), values = bytes_at(reinterpret_cast<const std::byte*>(table.data()));
  keep(hn::TableLookupBytes(values, low(both)), 0, codes),
      keep(hn::TableLookupBytes(values, high(both)), 0, codes + 16);
}

/// Bit j of the word for element j, as 16.
HWY_INLINE ByteVector fifth_bits(const std::byte* half_word) {
  alignas(16) static constexpr uint8_t kBit[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
  alignas(16) static constexpr uint8_t kByte[16] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1};
  const Bytes d;
  uint16_t half = 0;
  std::memcpy(&half, half_word, sizeof(half));
  const auto both = hn::BitCast(d, hn::Set(hn::Repartition<uint16_t, Bytes>(), half));
  return hn::IfThenElseZero(hn::TestBit(hn::TableLookupBytes(both, hn::Load(d, kByte)), hn::Load(d, kBit)),
                            hn::Set(d, 16));
}
HWY_INLINE void unpack_five(const std::byte* word, const std::byte* nibbles, int bias, int8_t* codes) {
  const ByteVector both = bytes_at(nibbles);
  keep(hn::Or(low(both), fifth_bits(word)), bias, codes);
  keep(hn::Or(high(both), fifth_bits(word + 2)), bias, codes + 16);
}

/// Two bits of each element, and of Q3_K a third one that says that 4 is not subtracted; masks: null for Q2_K.
HWY_INLINE void unpack_two(const std::byte* from, const std::byte* masks, int8_t* codes) {
  const Bytes d;
  for (int half = 0; half < 2; ++half)
    for (int l = 0; l < 32; l += 16) {
      const ByteVector four = bytes_at(from + 32 * half + l), three = hn::Set(d, 3);
      ByteVector two[] = {hn::And(four, three), hn::And(hn::ShiftRight<2>(four), three),
                          hn::And(hn::ShiftRight<4>(four), three), hn::ShiftRight<6>(four)};
      for (int k = 0; k < 4; ++k) {
        if (masks != nullptr) two[k] = hn::Or(two[k], where_bit(bytes_at(masks + l), 4 * half + k, 4));
        keep(two[k], masks != nullptr ? 4 : 0, codes + 128 * half + 32 * k + l);
      }
    }
}

/// fifth: null for Q4_K.
HWY_INLINE void unpack_four_k(const std::byte* from, const std::byte* fifth, int8_t* codes) {
  for (int pair = 0; pair < 4; ++pair)
    for (int l = 0; l < 32; l += 16) {
      const ByteVector both = bytes_at(from + 32 * pair + l);
      ByteVector first = low(both), second = high(both);
      if (fifth != nullptr) {
        const ByteVector bits = bytes_at(fifth + l);
        first = hn::Or(first, where_bit(bits, 2 * pair, 16)),
        second = hn::Or(second, where_bit(bits, 2 * pair + 1, 16));
      }
      keep(first, 0, codes + 64 * pair + l), keep(second, 0, codes + 64 * pair + 32 + l);
    }
}

HWY_INLINE void unpack_six(const std::byte* lows, const std::byte* highs, int8_t* codes) {
  const ByteVector upper = hn::Set(Bytes(), 0x30);
  for (int half = 0; half < 2; ++half)
    for (int l = 0; l < 32; l += 16) {
      const ByteVector first = bytes_at(lows + 64 * half + l), second = bytes_at(lows + 64 * half + 32 + l);
      const ByteVector two = bytes_at(highs + 32 * half + l);
      int8_t* to = codes + 128 * half + l;
      keep(hn::Or(low(first), hn::And(hn::ShiftLeft<4>(two), upper)), 32, to);
      keep(hn::Or(low(second), hn::And(hn::ShiftLeft<2>(two), upper)), 32, to + 32);
      keep(hn::Or(high(first), hn::And(two, upper)), 32, to + 64);
      keep(hn::Or(high(second), hn::And(hn::ShiftRight<2>(two), upper)), 32, to + 96);
    }
}

/// The codes of a block of a type of GGUF, each a byte that is multiplied by a scale.
HWY_INLINE void unpack_codes(GgufType type, const std::byte* block, int8_t* codes) {
  switch (type) {
    case GgufType::q4_0:
      return unpack_nibbles(block + 2, 8, codes);
    case GgufType::q4_1:
      return unpack_nibbles(block + 4, 0, codes);
    case GgufType::q5_0:
      return unpack_five(block + 2, block + 6, 16, codes);
    case GgufType::q5_1:
      return unpack_five(block + 4, block + 8, 0, codes);
    case GgufType::q8_0:
      return keep(bytes_at(block + 2), 0, codes), keep(bytes_at(block + 18), 0, codes + 16);
    case GgufType::q2_k:
      return unpack_two(block + 16, nullptr, codes);
    case GgufType::q3_k:
      return unpack_two(block + 32, block, codes);
    case GgufType::q4_k:
      return unpack_four_k(block + 16, nullptr, codes);
    case GgufType::q5_k:
      return unpack_four_k(block + 48, block + 16, codes);
    case GgufType::q6_k:
      return unpack_six(block, block + 128, codes);
    case GgufType::iq4_nl:
      return look_up_nibbles(block + 2, kIq4, codes);
    case GgufType::iq4_xs:
      for (int j = 0; j < 8; ++j) look_up_nibbles(block + 8 + 16 * j, kIq4, codes + 32 * j);
      return;
    case GgufType::mxfp4:
      return look_up_nibbles(block + 1, kE2m1Twice, codes);
    case GgufType::f32:
    case GgufType::f16:
    case GgufType::bf16:
      return;  // no blocks
  }
}

#endif

}  // namespace nought::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
