#include "nought/zero/codes.h"

#include <algorithm>
#include <cmath>

namespace nought {

namespace {

/// Elements that are quantized at a time.
constexpr int64_t kAtOnce = int64_t{1} << 20;

void require_finite(const Context& context, const Tensor& scales, const Parameter& parameter) {
  const std::vector<float> values = context.to_host<float>(scales);
  require(std::all_of(values.begin(), values.end(), [](float scale) { return std::isfinite(scale); }),
          "{} holds a value that is not finite, or too large for 8-bit codes", parameter.name);
}

}  // namespace

void load_codes(const Context& context, const StateSource& source, const Unit& unit, size_t segment, Interval kept,
                const Weight& stored) {
  for (const ParameterPiece& piece : pieces_in(unit, segment, kept)) {
    const Parameter& parameter = unit.parameters()[piece.parameter];
    require<ConfigError>(parameter.placement.cuts.empty(), "parameter {} is cut over ranks: it cannot be kept as codes",
                         parameter.name);
    const Interval whole = piece.in_parameter;
    for (int64_t begin = whole.begin; begin < whole.end; begin += kAtOnce) {
      const Interval stretch{begin, std::min(whole.end, begin + kAtOnce)};
      const Tensor x = context.empty({stretch.size()}, DType::f32, Category::workspace);
      fill(context, source, StateKind::master, parameter, std::span(&stretch, 1), x);
      const int64_t at = piece.in_segment.begin + begin - whole.begin - kept.begin, end = at + stretch.size();
      const Tensor scales = stored.scales.flat(at / kCodeBlock, end / kCodeBlock);
      context.run(QuantizeBlocks{.x = x, .codes = stored.values.flat(at, end), .scales = scales});
      require_finite(context, scales, parameter);
    }
  }
}

Tensor decoded(const Context& context, const Weight& weight, DType dtype) {
  const Tensor x = context.empty(weight.shape(), dtype, Category::workspace);
  context.run(DequantizeBlocks{.weight = weight, .x = x});
  return x;
}

}  // namespace nought
