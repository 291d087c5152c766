#include "nought/kernels/check.h"
#include "nought/kernels/cpu/cpu.h"
#include "nought/kernels/cpu/parallel.h"
#include "nought/kernels/cpu/targets.h"
#include "nought/kernels/reference/reference.h"
#include "nought/kernels/wire_records.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nought/kernels/cpu/wire.cpp"
#include <hwy/foreach_target.h>

#include "nought/kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nought::cpu::HWY_NAMESPACE {

/// Whole vectors, and then the elements that are left, of one element each.
template <class Vectors, class Elements>
HWY_INLINE void over(int64_t count, int64_t lanes, const Vectors& vectors, const Elements& elements) {
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) vectors(i);
  for (; i < count; ++i) elements(i);
}

/// y[0, count) = h, rounded.
template <class T>
HWY_INLINE void narrow(const float* h, int64_t count, T* y) {
  const F32 d;
  sweep(d, 0, count, [=](int64_t i, auto access) HWY_ATTR { access.store(d, access.load(d, h + i), y + i); });
}

/// Two codes of 4 bits in a byte: those of the first and of the second half of the block.
HWY_INLINE void pack(const int8_t* codes, int64_t count, uint8_t* bytes) {
  for (int64_t i = 0; i < count / 2; ++i)
    bytes[i] = static_cast<uint8_t>((codes[i] & 15) | static_cast<uint8_t>(codes[count / 2 + i]) << 4);
}

HWY_INLINE void unpack(const uint8_t* bytes, int64_t count, int8_t* codes) {
  for (int64_t i = 0; i < count / 2; ++i) {
    codes[i] = static_cast<int8_t>(static_cast<int8_t>(bytes[i] << 4) >> 4);
    codes[count / 2 + i] = static_cast<int8_t>(static_cast<int8_t>(bytes[i]) >> 4);
  }
}

/// The codes of h, which is 0 behind `count` elements up to a whole vector. Returns the scale.
HWY_INLINE float quantize(const float* h, int64_t count, int bits, int8_t* codes) {
  const F32 d;
  const hn::Rebind<int32_t, F32> d32;
  const hn::Rebind<int8_t, F32> d8;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  auto most = hn::Zero(d32);  // magnitudes as bits: they are ordered as the numbers are, and NaN is above all
  for (int64_t i = 0; i < count; i += lanes) most = hn::Max(most, hn::BitCast(d32, hn::Abs(hn::LoadU(d, h + i))));
  HWY_ALIGN int32_t each[hn::MaxLanes(F32())];
  hn::Store(most, d32, each);
  const auto largest = static_cast<uint32_t>(*std::max_element(each, each + lanes));
  const float factor = wire_factor(largest, bits), limit = static_cast<float>(1 << (bits - 1));
  const auto scaled_by = hn::Set(d, std::isnan(factor) ? 0.0f : factor);
  const auto least = hn::Set(d, -limit), highest = hn::Set(d, limit - 1);
  if (std::isnan(factor)) {
    std::fill_n(codes, round_up(count, lanes), int8_t{0});
    return factor;
  }
  for (int64_t i = 0; i < count; i += lanes) {
    const auto code = hn::Clamp(hn::Round(hn::Mul(hn::LoadU(d, h + i), scaled_by)), least, highest);
    hn::StoreU(hn::DemoteTo(d8, hn::ConvertTo(d32, code)), d8, codes + i);
  }
  return wire_scale(largest, bits);
}

/// to[i] [+]= code * scale of a vector; added without rounding the product, where the CPU can.
template <bool kAdd, class D>
HWY_INLINE void dequantize_vector(D d, const int8_t* codes, float scale, float* to) {
  const auto code = load(d, codes), factor = hn::Set(d, scale);
  hn::StoreU(kAdd ? hn::MulAdd(code, factor, hn::LoadU(d, to)) : hn::Mul(code, factor), d, to);
}

/// to[i] [+]= code * scale.
template <bool kAdd>
HWY_INLINE void dequantize(const int8_t* codes, int64_t count, float scale, float* to) {
  const F32 d;
  const hn::CappedTag<float, 1> one;
  over(
      count, static_cast<int64_t>(hn::Lanes(d)),
      [=](int64_t i) HWY_ATTR { dequantize_vector<kAdd>(d, codes + i, scale, to + i); },
      [=](int64_t i) HWY_ATTR { dequantize_vector<kAdd>(one, codes + i, scale, to + i); });
}

/// A block's codes, one in a byte.
HWY_INLINE const int8_t* codes_of(const std::byte* in_record, int64_t count, int bits, int8_t* room) {
  if (bits == 8) return reinterpret_cast<const int8_t*>(in_record);
  unpack(reinterpret_cast<const uint8_t*>(in_record), count, room);
  return room;
}

template <class T>
HWY_INLINE void encode_block(const T* x, T* error, int64_t count, const EncodeWire& op, std::byte* codes,
                             std::byte* scale_of_block) {
  HWY_ALIGN float h[kWireBlock + hn::MaxLanes(F32())], before[kWireBlock], after[kWireBlock];
  HWY_ALIGN int8_t wide[kWireBlock + hn::MaxLanes(F32())];
  widen(x, count, h);
  if (error != nullptr) {
    widen(error, count, before);
    for (int64_t i = 0; i < count; ++i) h[i] += before[i];
  }
  const F32 d;
  for (int64_t i = count; i < round_up(count, static_cast<int64_t>(hn::Lanes(d))); ++i) h[i] = 0;
  if (op.bits == 32) {
    std::memcpy(codes, h, static_cast<size_t>(count) * sizeof(float));
    std::copy_n(h, count, after);
  } else if (op.bits == 16) {
    narrow(h, count, reinterpret_cast<bf16_t*>(codes));
    widen(reinterpret_cast<const bf16_t*>(codes), count, after);
  } else {
    const float scale = quantize(h, count, op.bits, wide);
    std::memcpy(scale_of_block, &scale, sizeof scale);
    if (op.bits == 8) {
      std::memcpy(codes, wide, static_cast<size_t>(count));
    } else {
      pack(wide, count, reinterpret_cast<uint8_t*>(codes));
    }
    if (error == nullptr || std::isnan(scale)) return;
    dequantize<false>(wide, count, scale, after);
  }
  if (error == nullptr) return;
  const auto beta = static_cast<float>(op.beta);
  const auto kept = hn::Set(d, beta), rest = hn::Set(d, 1 - beta);
  const float *went_in = h, *was = before, *came_out = after;
  sweep(d, 0, count, [=](int64_t i, auto access) HWY_ATTR {
    const auto lost = hn::Sub(access.load(d, went_in + i), access.load(d, came_out + i));
    access.store(d, hn::MulAdd(kept, access.load(d, was + i), hn::Mul(rest, lost)), error + i);
  });
}

void encode_wire(const EncodeWire& op, int64_t begin, int64_t end) {
  const WireBlocks blocks = blocks_of(op);
  const int64_t bytes = wire_record_bytes(blocks.numel, op.bits);
  visit(op.x.dtype(), [&](auto tag) HWY_ATTR {
    using T = typename decltype(tag)::type;
    for (int64_t b = begin; b < end; ++b) {
      const WireBlock block = blocks[b];
      const int64_t first = block.part * blocks.numel + block.begin;
      std::byte* record = op.records.raw() + record_of(op, block.part) * bytes;
      encode_block(op.x.data<T>() + first, op.error ? op.error.data<T>() + first : nullptr, block.count, op,
                   codes_in(record, block, op.bits), scale_in(record, block, blocks.numel, op.bits));
    }
  });
}

/// sum [+]= what a record holds of a block.
template <bool kAdd>
HWY_INLINE void add_values(std::byte* record, const WireBlock& block, int64_t numel, int bits, float* sum) {
  HWY_ALIGN int8_t room[kWireBlock];
  HWY_ALIGN float values[kWireBlock];
  const std::byte* codes = codes_in(record, block, bits);
  if (has_wire_scales(bits)) {
    float scale = 0;
    std::memcpy(&scale, scale_in(record, block, numel, bits), sizeof scale);
    return dequantize<kAdd>(codes_of(codes, block.count, bits, room), block.count, scale, sum);
  }
  float* into = kAdd ? values : sum;
  if (bits == 32) {
    std::memcpy(into, codes, static_cast<size_t>(block.count) * sizeof(float));
  } else {
    widen(reinterpret_cast<const bf16_t*>(codes), block.count, into);
  }
  for (int64_t i = 0; kAdd && i < block.count; ++i) sum[i] += values[i];
}

void decode_wire(const DecodeWire& op, int64_t begin, int64_t end) {
  const WireBlocks blocks = blocks_of(op);
  const int64_t bytes = wire_record_bytes(blocks.numel, op.bits);
  visit(op.y.dtype(), [&](auto tag) HWY_ATTR {
    using T = typename decltype(tag)::type;
    HWY_ALIGN float sum[kWireBlock];
    for (int64_t b = begin; b < end; ++b) {
      const WireBlock block = blocks[b];
      const auto record = [&](int64_t term) { return op.records.raw() + (term * op.parts + block.part) * bytes; };
      add_values<false>(record(0), block, blocks.numel, op.bits, sum);
      for (int64_t term = 1; term < op.terms; ++term) add_values<true>(record(term), block, blocks.numel, op.bits, sum);
      narrow(sum, block.count, op.y.data<T>() + block.part * blocks.numel + block.begin);
    }
  });
}

}  // namespace nought::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nought::cpu {
HWY_EXPORT(encode_wire);
HWY_EXPORT(decode_wire);

void run(const EncodeWire& op) {
  if (op.x.dtype() == DType::f64) return reference::run(op);
  check(op);
  parallel_rows(blocks_of(op).count(), kWireBlock, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(encode_wire)(op, begin, end);
  });
}

void run(const DecodeWire& op) {
  if (op.y.dtype() == DType::f64) return reference::run(op);
  check(op);
  parallel_rows(blocks_of(op).count(), kWireBlock * op.terms, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(decode_wire)(op, begin, end);
  });
}

}  // namespace nought::cpu
#endif
