// Decoding blocks: their codes become bytes, a sub-block at a time, and these are multiplied by its scale.
#include "nought/kernels/cpu/blocks.h"

#include <algorithm>
#include <cstring>

#include "nought/io/group_blocks.h"
#include "nought/kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nought/kernels/cpu/blocks.cpp"
#include <hwy/foreach_target.h>

#include "nought/kernels/cpu/blocks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nought::cpu::HWY_NAMESPACE {

/// [begin, end) of what is unpacked, to `to`.
template <class T>
struct Target {
  Interval elements;
  T* to;
  bool add;
};

/// A vector of codes. Behind bytes there is room for a whole one.
template <class Access, class D>
HWY_INLINE hn::Vec<D> load_codes(const Access& /*access*/, D d, const int8_t* from) {
  return load(d, from);
}
template <class Access, class D>
HWY_INLINE hn::Vec<D> load_codes(const Access& access, D d, const float* from) {
  return access.load(d, from);
}

/// Elements of a sub-block that begins at `first`: (code - zero) * scale - min, with one rounding each.
template <class Code, class T>
HWY_INLINE void scale_codes(const Code* codes, int64_t first, int64_t count, float scale, float zero, float min,
                            const Target<T>& target) {
  const F32 d;
  const Interval part{std::max(first, target.elements.begin), std::min(first + count, target.elements.end)};
  const auto scales = hn::Set(d, scale), zeros = hn::Set(d, zero), mins = hn::Set(d, min);
  T* out = target.to - target.elements.begin;
  sweep(d, part.begin, std::max(part.begin, part.end), [=, add = target.add](int64_t i, auto access) HWY_ATTR {
    const auto value = hn::Sub(hn::Mul(hn::Sub(load_codes(access, d, codes + i), zeros), scales), mins);
    access.store(d, add ? hn::Add(access.load(d, out + i), value) : value, out + i);
  });
}

#if HWY_TARGET != HWY_SCALAR

template <class T>
HWY_INLINE void decode_block(const WeightFormat& format, const std::byte* block, const Target<T>& target) {
  alignas(16) int8_t codes[kRoom];
  unpack_codes(*format.gguf, block, codes);
  SubBlocks sub;
  read_sub_blocks(*format.gguf, block, sub);
  for (int64_t j = 0, first = 0; first < format.block; ++j, first += sub.size) {
    const auto at = static_cast<size_t>(j);
    scale_codes(codes, first, sub.size, sub.scales[at], 0, sub.has_mins ? sub.mins[at] : 0, target);
  }
}

/// A block of a folder's codes: those of 8 bits as they lie, those of 4 bits in stretches. False for others.
template <class T>
HWY_INLINE bool decode_group_block(const WeightFormat& format, const std::byte* block, const Target<T>& target) {
  const GroupHead head = head_of(format, block);
  const bool natural = format.codes == CodeTable::natural, biased = format.codes == CodeTable::biased;
  if (format.bits == 8 && format.codes == CodeTable::int8) {
    int8_t codes[kRoom];
    for (int64_t first = target.elements.begin; first < target.elements.end; first += kMostOfBlock) {
      const int64_t count = std::min(kMostOfBlock, target.elements.end - first);
      std::memcpy(codes, head.codes + first, static_cast<size_t>(count));
      scale_codes(codes - first, first, count, head.scale, head.zero, 0, target);
    }
    return true;
  }
  const bool doubled = format.codes == CodeTable::e2m1;
  if (format.bits != 4 || format.block % 2 != 0 || !(natural || biased || doubled)) return false;
  alignas(16) int8_t codes[kRoom];
  for (int64_t first = target.elements.begin / 32 * 32; first < target.elements.end; first += kMostOfBlock) {
    const int64_t count = std::min(kMostOfBlock, format.block - first);
    int64_t i = 0;
    const Bytes d;
    for (; i + 32 <= count; i += 32) {
      const ByteVector both = bytes_at(head.codes + (first + i) / 2);
      ByteVector even = low(both), odd = high(both);
      if (doubled) {
        const ByteVector values = bytes_at(reinterpret_cast<const std::byte*>(kE2m1Twice.data()));
        even = hn::TableLookupBytes(values, even), odd = hn::TableLookupBytes(values, odd);
      }
      keep(hn::InterleaveLower(d, even, odd), biased ? 8 : 0, codes + i);
      keep(hn::InterleaveUpper(d, even, odd), biased ? 8 : 0, codes + i + 16);
    }
    for (; i < count; ++i) {
      const auto byte = std::to_integer<size_t>(head.codes[(first + i) / 2]);
      const size_t code = i % 2 == 0 ? byte & 15 : byte >> 4;
      codes[i] = doubled ? kE2m1Twice[code] : static_cast<int8_t>(static_cast<int>(code) - (biased ? 8 : 0));
    }
    scale_codes(codes - first, first, count, doubled ? head.scale / 2 : head.scale, head.zero, 0, target);
  }
  return true;
}

#else

template <class T>
void decode_block(const WeightFormat& format, const std::byte* block, const Target<T>& target) {
  float values[kMostOfBlock];
  decode_blocks(format, block, 1, values);
  scale_codes(values, 0, format.block, 1, 0, 0, target);
}
template <class T>
bool decode_group_block(const WeightFormat& /*format*/, const std::byte* /*block*/, const Target<T>& /*target*/) {
  return false;
}

#endif

/// A block of a folder whose codes are numbers of other bits, or floats.
template <class T>
void decode_other(const WeightFormat& format, const std::byte* block, const Target<T>& target) {
  float values[kMostOfBlock];
  for (int64_t first = target.elements.begin; first < target.elements.end; first += kMostOfBlock) {
    const int64_t count = std::min(kMostOfBlock, target.elements.end - first);
    decode_group(format, block, {first, first + count}, values);
    scale_codes(values - first, first, count, 1, 0, 0, target);
  }
}

template <class T>
void decode_elements(const WeightFormat& format, const std::byte* bytes, Interval elements, T* to, bool add) {
  for (int64_t at = elements.begin; at < elements.end;) {
    const int64_t index = at / format.block, first = index * format.block;
    const int64_t end = std::min(elements.end, first + format.block);
    const std::byte* block = bytes + index * format.block_bytes;
    const Target<T> target{{at - first, end - first}, to, add};
    if (format.gguf) {
      decode_block(format, block, target);
    } else if (!decode_group_block(format, block, target)) {
      decode_other(format, block, target);
    }
    to += end - at, at = end;
  }
}

void decode_stretch_to(const WeightFormat& format, const std::byte* bytes, Interval elements, DType dtype, void* to,
                       bool add) {
  visit(dtype, [&](auto tag) HWY_ATTR {
    decode_elements(format, bytes, elements, static_cast<typename decltype(tag)::type*>(to), add);
  });
}

}  // namespace nought::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nought::cpu {
HWY_EXPORT(decode_stretch_to);

void decode_stretch(const WeightFormat& format, const std::byte* bytes, Interval elements, DType dtype, std::byte* to,
                    bool add) {
  HWY_DYNAMIC_DISPATCH(decode_stretch_to)(format, bytes, elements, dtype, to, add);
}

}  // namespace nought::cpu
#endif
