#include "nought/quantize/rounding_grid.h"

#include "nought/tensor/dtype.h"

namespace nought {

namespace {

/// A scale that f16 holds, and that is not 0: values of 0 need none, and the smallest ones keep a number.
float stored_scale(float scale) {
  constexpr float kLeast = 0x1p-24f, kMost = 65504;
  return scale == 0 ? 1 : static_cast<float>(f16_t(std::clamp(scale, kLeast, kMost)));
}

}  // namespace

RoundingGrid grid_of(std::span<const float> values, const GridRule& rule) {
  float least = 0, most = 0;
  for (const float value : values) least = std::min(least, value), most = std::max(most, value);
  RoundingGrid grid{.last = rule.codes() - 1};
  const auto steps = static_cast<float>(grid.last);
  if (rule.symmetric) {
    grid.scale = stored_scale(2 * std::max(-least, most) / steps);
    grid.zero = rule.codes() / 2;
  } else {
    grid.scale = stored_scale((most - least) / steps);
    grid.zero = static_cast<int>(std::clamp(std::nearbyint(-least / grid.scale), 0.0f, steps));
  }
  return grid;
}

}  // namespace nought
