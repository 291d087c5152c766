// RoundingGrid: the numbers that a group of weights is rounded to: whole multiples of a scale, from a zero point on.
//
// Design goals: a code means what the formats of folders say it means: value = (code - zero) * scale, with the scale
// that the file holds. So codes are chosen for the scale after it was rounded to 16 bits.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

namespace nought {

struct GridRule {
  int bits = 4;
  bool symmetric = true;  // the zero point is half of the codes; else a code of its own for each group

  int codes() const { return 1 << bits; }
};

struct RoundingGrid {
  float scale = 1;
  int zero = 0, last = 15;  // codes are 0 to last

  /// The nearest code. fp32's nearest even number of scales.
  int code_of(float value) const {
    const float code = std::nearbyint(value / scale) + static_cast<float>(zero);
    return static_cast<int>(std::clamp(code, 0.0f, static_cast<float>(last)));
  }
  float value_of(int code) const { return static_cast<float>(code - zero) * scale; }
  float rounded(float value) const { return value_of(code_of(value)); }
};

/// The grid that reaches from the least to the greatest of the values, and to 0; the scale is one of f16. Symmetric:
/// the scale is 2 * max / (codes - 1), as GPTQ has it.
RoundingGrid grid_of(std::span<const float> values, const GridRule& rule);

}  // namespace nought
