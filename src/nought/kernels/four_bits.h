// Codes of 4 bits as bitsandbytes has them, NF4 and FP4: what they stand for, and how values become codes, to the bit.
//
// Blocks are kFourBitBlock neighbours of the flattened weight; the scale of a block is its largest magnitude. With
// double quantization (arXiv 2305.14314) the scales are codes themselves: of their difference to the mean of all, in
// blocks of kNestedBlock, by a map of 256 values.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "nought/kernels/weight.h"

namespace nought {

/// What the 16 codes of a kind stand for.
const std::array<float, 16>& four_bit_values(CodeKind kind);

/// The codes of the values of a block, at most kFourBitBlock, two a byte and the upper one first. Returns their scale;
/// not a finite number if a value is not.
float quantize_four_bits(CodeKind kind, std::span<const float> values, uint8_t* codes);

/// Scales that share a scale.
inline constexpr int64_t kNestedBlock = 256;
/// What the codes of scales stand for: the dynamic map of arXiv 2110.02861 as bitsandbytes makes it, in f32.
const std::array<float, 256>& nested_values();

/// Scales as codes: nested_values()[code] * `scales` of their block + `offset`, in f32.
struct NestedScales {
  std::vector<uint8_t> codes;
  std::vector<float> scales;
  float offset = 0;

  float at(int64_t index) const {
    return nested_values()[codes[static_cast<size_t>(index)]] * scales[static_cast<size_t>(index / kNestedBlock)] +
           offset;
  }
};
/// The codes are those of bitsandbytes on a CPU, and the offset is the mean as torch forms it on one thread there.
NestedScales nest_scales(std::span<const float> scales);

}  // namespace nought
