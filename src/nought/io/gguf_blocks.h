// The scales of the blocks of GGUF's types, for whatever decodes them: an element is code * scale - min, in f32.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "nought/io/weight_formats.h"

namespace nought {

/// ggml's table of IQ4_NL and IQ4_XS, by codes.
inline constexpr std::array<int8_t, 16> kIq4{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
/// E2M1's values twice, by codes; among integers there is no -0.
inline constexpr std::array<int8_t, 16> kE2m1Twice{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/// The scales and minimums of the sub-blocks of a block, of `size` elements each.
struct SubBlocks {
  static constexpr size_t kMost = 16;
  std::array<float, kMost> scales, mins;
  int64_t size = 0;
  bool has_mins = false;
};

/// Reads those of a block of codes, of Q4_0 to MXFP4. Codes of E2M1 are those of kE2m1Twice.
void read_sub_blocks(GgufType type, const std::byte* block, SubBlocks& to);

}  // namespace nought
