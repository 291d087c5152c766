#include "nought/kernels/cpu/codes.h"

#include <algorithm>

#include "nought/kernels/check.h"
#include "nought/kernels/cpu/blocks.h"
#include "nought/kernels/cpu/cpu.h"
#include "nought/kernels/cpu/parallel.h"
#include "nought/kernels/cpu/scratch.h"
#include "nought/kernels/cpu/targets.h"
#include "nought/kernels/four_bits.h"
#include "nought/kernels/reference/reference.h"
#include "nought/kernels/rounding.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nought/kernels/cpu/codes.cpp"
#include <hwy/foreach_target.h>

#include "nought/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nought::cpu::HWY_NAMESPACE {

/// A vector of codes as floats. kCodeBlock is a multiple of every vector's length.
template <bool kAdd, class T>
HWY_INLINE void decode_blocks(const int8_t* codes, const f16_t* scales, int64_t blocks, T* to) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t block = 0; block < blocks; ++block, codes += kCodeBlock, to += kCodeBlock) {
    const auto scale = hn::Set(d, float{scales[block]});
    for (int64_t i = 0; i < kCodeBlock; i += lanes) {
      const auto value = hn::Mul(load(d, codes + i), scale);
      store(d, kAdd ? hn::Add(load(d, to + i), value) : value, to + i);
    }
  }
}

// --- codes of 4 bits ---

/// The codes of a block, each in a byte of its own.
HWY_INLINE void unpack_block(const uint8_t* packed, uint8_t* codes) {
#if HWY_TARGET == HWY_SCALAR
  for (int64_t i = 0; i < kCodeBlockBytes; ++i) codes[2 * i] = packed[i] >> 4, codes[2 * i + 1] = packed[i] & 15;
#else
  const hn::FixedTag<uint8_t, 16> d;
  for (int64_t i = 0; i < kCodeBlockBytes; i += 16) {
    const auto both = hn::LoadU(d, packed + i);
    const auto upper = hn::ShiftRight<4>(both), lower = hn::And(both, hn::Set(d, 15));
    hn::StoreU(hn::InterleaveLower(d, upper, lower), d, codes + 2 * i);
    hn::StoreU(hn::InterleaveUpper(d, upper, lower), d, codes + 2 * i + 16);
  }
#endif
}

/// What a vector of codes stands for.
HWY_INLINE hn::Vec<F32> looked_up(const float* table, const uint8_t* codes) {
  const F32 d;
  const hn::RebindToSigned<F32> di;
  const hn::Rebind<uint8_t, F32> d8;
  [[maybe_unused]] const auto places = hn::PromoteTo(di, hn::LoadU(d8, codes));
  if constexpr (hn::MaxLanes(F32()) >= 16) {
    return hn::TableLookupLanes(hn::LoadU(d, table), hn::IndicesFromVec(d, places));
  } else if constexpr (hn::MaxLanes(F32()) == 8) {
    const auto indices = hn::IndicesFromVec(d, hn::And(places, hn::Set(di, 7)));
    const auto first = hn::TableLookupLanes(hn::LoadU(d, table), indices);
    const auto second = hn::TableLookupLanes(hn::LoadU(d, table + 8), indices);
    return hn::IfThenElse(hn::RebindMask(d, hn::Gt(places, hn::Set(di, 7))), second, first);
  } else {
    float values[hn::MaxLanes(F32())];
    for (size_t i = 0; i < hn::Lanes(d); ++i) values[i] = table[codes[i]];
    return hn::LoadU(d, values);
  }
}

template <bool kAdd, class T>
HWY_INLINE void decode_block(const uint8_t* packed, const float* table, float of_block, T* to) {
  const F32 d;
  alignas(16) uint8_t codes[kFourBitBlock];
  unpack_block(packed, codes);
  const auto scale = hn::Set(d, of_block);
  for (int64_t i = 0; i < kFourBitBlock; i += static_cast<int64_t>(hn::Lanes(d))) {
    const auto value = hn::Mul(looked_up(table, codes + i), scale);
    store(d, kAdd ? hn::Add(load(d, to + i), value) : value, to + i);
  }
}

/// Elements [begin, end) of the weight, seen flat. A block of which they have a part is decoded to memory of its own.
template <bool kAdd, class T>
HWY_INLINE void decode_four_bits(const uint8_t* packed, const float* scales, const float* table, Interval elements,
                                 T* to) {
  for (int64_t at = elements.begin; at < elements.end;) {
    const int64_t block = at / kFourBitBlock, first = block * kFourBitBlock;
    const int64_t end = std::min(elements.end, first + kFourBitBlock);
    if (end - at == kFourBitBlock) {
      decode_block<kAdd>(packed + block * kCodeBlockBytes, table, scales[block], to);
    } else {
      T whole[kFourBitBlock];
      if (kAdd) std::copy_n(to, end - at, whole + (at - first));
      decode_block<kAdd>(packed + block * kCodeBlockBytes, table, scales[block], whole);
      std::copy_n(whole + (at - first), end - at, to);
    }
    to += end - at;
    at = end;
  }
}

void decode_four_bits_to(const uint8_t* packed, const float* scales, const float* table, Interval elements, DType dtype,
                         void* to, bool add) {
  visit(dtype, [&](auto tag) HWY_ATTR {
    using T = typename decltype(tag)::type;
    if (add) {
      decode_four_bits<true>(packed, scales, table, elements, static_cast<T*>(to));
    } else {
      decode_four_bits<false>(packed, scales, table, elements, static_cast<T*>(to));
    }
  });
}

// --- codes of 8 bits ---

void decode_to(const int8_t* codes, const f16_t* scales, int64_t blocks, DType dtype, void* to, bool add) {
  visit(dtype, [&](auto tag) HWY_ATTR {
    using T = typename decltype(tag)::type;
    if (add) {
      decode_blocks<true>(codes, scales, blocks, static_cast<T*>(to));
    } else {
      decode_blocks<false>(codes, scales, blocks, static_cast<T*>(to));
    }
  });
}

}  // namespace nought::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nought::cpu {
HWY_EXPORT(decode_to);
HWY_EXPORT(decode_four_bits_to);

namespace {

void decode_bands(const Weight& weight, Interval elements, DType dtype, std::byte* to, bool add) {
  const std::byte* bytes = weight.values.raw();
  int64_t first = 0;
  for (const Weight::Band& band : weight.bands()) {
    const Interval part = intersect(elements, {first, band.end});
    if (!part.empty()) {
      decode_stretch(*band.format, bytes, {part.begin - first, part.end - first}, dtype, to, add);
      to += part.size() * size_of(dtype);
    }
    bytes += bytes_of_blocks(*band.format, band.end - first);
    first = band.end;
  }
}

}  // namespace

std::optional<BlockRows> rows_of_blocks(const Weight& weight, Interval rows) {
  const int64_t columns = weight.dim(-1);
  int64_t first = 0;  // element
  const std::byte* bytes = weight.values.raw();
  for (const Weight::Band& band : weight.bands()) {
    const WeightFormat& format = *band.format;
    if (rows.begin * columns < band.end) {
      if (rows.end * columns > band.end) return std::nullopt;
      return BlockRows{&format, bytes + bytes_of_blocks(format, rows.begin * columns - first),
                       bytes_of_blocks(format, columns)};
    }
    bytes += bytes_of_blocks(format, band.end - first);
    first = band.end;
  }
  return std::nullopt;
}

void decode(const Weight& weight, int64_t begin, int64_t count, DType dtype, void* to, bool add) {
  if (weight.is_blocks()) return decode_bands(weight, {begin, begin + count}, dtype, static_cast<std::byte*>(to), add);
  if (weight.is_four_bits()) {
    HWY_DYNAMIC_DISPATCH(decode_four_bits_to)
    (weight.values.data<uint8_t>(), weight.scales.data<float>(), four_bit_values(weight.kind()).data(),
     Interval{begin, begin + count}, dtype, to, add);
    return;
  }
  HWY_DYNAMIC_DISPATCH(decode_to)
  (weight.values.data<int8_t>() + begin, weight.scales.data<f16_t>() + begin / kCodeBlock, count / kCodeBlock, dtype,
   to, add);
}

void run(const QuantizeBlocks& op) {
  check(op);
  visit_float(op.x.dtype(), [&](auto tag) {
    const auto* x = op.x.data<typename decltype(tag)::type>();
    int8_t* codes = op.codes.data<int8_t>();
    f16_t* scales = op.scales.data<f16_t>();
    parallel_rows(op.scales.numel(), kCodeBlock, [=](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block)
        scales[block] = quantize_block(x + block * kCodeBlock, codes + block * kCodeBlock);
    });
  });
}

void run(const DequantizeBlocks& op) {
  if (op.x.dtype() == DType::f64) return reference::run(op);
  check(op);
  // Rows of whole blocks, or stretches of codes of 4 bits, which need not begin with rows.
  const int64_t block = op.weight.is_four_bits() ? kFourBitBlock : std::max<int64_t>(1, op.weight.dim(-1));
  parallel_rows(op.x.numel() / block, block, [&](int64_t begin, int64_t end) {
    decode(op.weight, begin * block, (end - begin) * block, op.x.dtype(),
           op.x.raw() + begin * block * size_of(op.x.dtype()));
  });
}

void run(const DecodeScales& op) {
  check(op);
  const uint8_t* codes = op.codes.data<uint8_t>();
  const float *nested = op.nested.data<float>(), *values = nested_values().data();
  float* scales = op.scales.data<float>();
  parallel_rows(op.nested.numel() - 1, kNestedBlock, [=, n = op.scales.numel()](int64_t begin, int64_t end) {
    for (int64_t i = begin * kNestedBlock; i < std::min(n, end * kNestedBlock); ++i)
      scales[i] = values[codes[i]] * nested[1 + i / kNestedBlock] + nested[0];
  });
}

}  // namespace nought::cpu
#endif
