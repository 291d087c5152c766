// Where records of EncodeWire lie, and how a block of them is quantized: what all backends share. It is constexpr, so
// that it can be compiled for devices too.
#pragma once

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "nought/kernels/ops.h"

namespace nought {

/// A block of a part: its elements, and where they are in the record.
struct WireBlock {
  int64_t part = 0, begin = 0, count = 0;  // elements of the part
};

/// The blocks of so many parts of `numel` elements each.
struct WireBlocks {
  int64_t parts, numel;

  constexpr int64_t per_part() const { return ceil_div(numel, kWireBlock); }
  constexpr int64_t count() const { return parts * per_part(); }
  constexpr WireBlock operator[](int64_t i) const {
    const int64_t part = i / per_part(), begin = i % per_part() * kWireBlock, left = numel - begin;
    return {part, begin, left < kWireBlock ? left : kWireBlock};
  }
};

inline WireBlocks blocks_of(const EncodeWire& op) { return {op.parts, op.x.numel() / op.parts}; }
inline WireBlocks blocks_of(const DecodeWire& op) { return {op.parts, op.y.numel() / op.parts}; }

/// Which record a part goes to.
constexpr int64_t record_of(int64_t part, int64_t parts, int64_t hosts) {
  const int64_t ranks = parts / hosts;
  return part % ranks * hosts + part / ranks;
}
inline int64_t record_of(const EncodeWire& op, int64_t part) { return record_of(part, op.parts, op.hosts); }

/// The codes and the scale of a block in its record.
constexpr std::byte* codes_in(std::byte* record, const WireBlock& block, int bits) {
  return record + wire_code_bytes(block.begin, bits);
}
constexpr std::byte* scale_in(std::byte* record, const WireBlock& block, int64_t numel, int bits) {
  return record + wire_code_bytes(numel, bits) + block.begin / kWireBlock * static_cast<int64_t>(sizeof(float));
}

/// The factor of a block with this largest magnitude, given as bits: 0 if it is too small, NaN if it is not finite.
constexpr float wire_factor(uint32_t largest, int bits) {
  constexpr float kLeast = 0x1p-120f;
  if (largest >= 0x7F800000u) return std::numeric_limits<float>::quiet_NaN();
  const float magnitude = std::bit_cast<float>(largest);
  return magnitude < kLeast ? 0.0f : static_cast<float>(1 << (bits - 1)) / magnitude;
}
/// By which its codes are multiplied again.
constexpr float wire_scale(uint32_t largest, int bits) {
  const float factor = wire_factor(largest, bits);
  if (!(factor > 0)) return factor;
  return std::bit_cast<float>(largest) / static_cast<float>(1 << (bits - 1));
}

}  // namespace nought
