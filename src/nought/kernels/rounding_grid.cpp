#include "nought/kernels/rounding_grid.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "nought/compress/quantizers.h"
#include "nought/kernels/rounding.h"
#include "nought/tensor/dtype.h"

namespace nought {

namespace {

constexpr float kLargestE4m3 = 448;

/// A scale that f16 holds, and that is not 0: values of 0 need none, and the smallest ones keep a number.
float stored_scale(float scale) {
  constexpr float kLeast = 0x1p-24f, kMost = 65504;
  return scale == 0 ? 1 : static_cast<float>(f16_t(std::clamp(scale, kLeast, kMost)));
}

int nearest_e2m1(float value) {
  constexpr std::array<float, 7> kMiddles{.25f, .75f, 1.25f, 1.75f, 2.5f, 3.5f, 5};  // between two codes
  const float magnitude = std::abs(value);
  int code = 0;
  for (size_t i = 0; i < kMiddles.size(); ++i)
    if (magnitude > kMiddles[i] || (magnitude == kMiddles[i] && i % 2 == 1)) code = static_cast<int>(i) + 1;
  return value < 0 && code > 0 ? code + 8 : code;
}

RoundingGrid e2m1_grid(std::span<const float> values, float most) {
  constexpr int kLeast = -127, kMost = 127;  // exponents of E8M0
  RoundingGrid best{.codes = CodeTable::e2m1};
  if (most == 0) return best;
  const int exponent = std::ilogb(most) - 2;
  double least_loss = std::numeric_limits<double>::infinity();
  for (const int each : {exponent, exponent + 1}) {
    RoundingGrid grid = best;
    grid.scale = std::ldexp(1.0f, std::clamp(each, kLeast, kMost));
    double loss = 0;
    for (const float value : values) loss += std::pow(static_cast<double>(grid.rounded(value)) - value, 2);
    if (loss < least_loss) least_loss = loss, best.scale = grid.scale;
  }
  return best;
}

}  // namespace

int RoundingGrid::code_of(float value) const {
  if (codes == CodeTable::e2m1) return nearest_e2m1(value / scale);
  if (codes == CodeTable::e4m3) return e4m3_code(std::clamp(value / scale, -kLargestE4m3, kLargestE4m3));
  const float code = std::nearbyint(value / scale) + static_cast<float>(zero);
  return static_cast<int>(std::clamp(code, 0.0f, static_cast<float>(last)));
}

float RoundingGrid::value_of(int code) const {
  if (codes == CodeTable::e2m1) return kE2m1[static_cast<size_t>(code)] * scale;
  if (codes == CodeTable::e4m3) return e4m3_value(static_cast<uint8_t>(code)) * scale;
  return static_cast<float>(code - zero) * scale;
}

RoundingGrid grid_of_range(float least, float greatest, const GridRule& rule) {
  least = std::min(least, 0.0f), greatest = std::max(greatest, 0.0f);
  const float most = std::max(-least, greatest);
  RoundingGrid grid{.last = rule.count() - 1, .codes = rule.codes};
  const auto steps = static_cast<float>(grid.last);
  if (rule.codes == CodeTable::e4m3) {
    grid.scale = std::max(most / kLargestE4m3, std::numeric_limits<float>::min());
  } else if (rule.symmetric) {
    grid.scale = stored_scale(2 * most / steps);
    grid.zero = rule.count() / 2;
  } else {
    grid.scale = stored_scale((greatest - least) / steps);
    grid.zero = static_cast<int>(std::clamp(std::nearbyint(-least / grid.scale), 0.0f, steps));
  }
  return grid;
}

RoundingGrid grid_of(std::span<const float> values, const GridRule& rule) {
  float least = 0, greatest = 0;
  for (const float value : values) least = std::min(least, value), greatest = std::max(greatest, value);
  if (rule.codes == CodeTable::e2m1) return e2m1_grid(values, std::max(-least, greatest));
  return grid_of_range(least, greatest, rule);
}

std::string_view name_of(CodeTable codes) {
  constexpr std::array<std::string_view, 9> kNames{"number", "natural", "int8", "biased", "e2m1",
                                                   "e4m3",   "nf4",     "fp4",  "iq4"};
  return kNames[static_cast<size_t>(codes)];
}

RowSteps::RowSteps(RowGrid grid, int bits, float least, float greatest) {
  if (grid == RowGrid::e4m3) {
    scale = std::max(std::max(-least, greatest) / kLargestE4m3, std::numeric_limits<float>::min());
  } else if (grid == RowGrid::affine) {
    least = std::min(least, 0.0f), greatest = std::max(greatest, 0.0f);
    const float steps = std::ldexp(1.0f, bits) - 1;
    scale = std::max((greatest - least) / steps, std::numeric_limits<float>::epsilon());
    first = -std::clamp(std::nearbyint(-least / scale), 0.0f, steps);
    last = steps + first;
  } else {
    const bool around_zero = grid == RowGrid::symmetric;
    const QuantizedGrid of_row({around_zero ? QuantizerScale::symmetric : QuantizerScale::asymmetric, bits},
                               {least, greatest});
    scale = of_row.scale, zero = of_row.zero, first = of_row.first, last = of_row.last;
  }
}

float RowSteps::rounded(RowGrid grid, float value) const {
  if (scale == 0) return value;
  if (grid == RowGrid::e4m3)
    return e4m3_value(e4m3_code(std::clamp(value / scale, -kLargestE4m3, kLargestE4m3))) * scale;
  return std::clamp(std::nearbyint((value - zero) / scale), first, last) * scale + zero;
}

}  // namespace nought
