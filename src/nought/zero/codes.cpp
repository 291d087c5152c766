#include "nought/zero/codes.h"

#include <algorithm>
#include <cmath>

#include "nought/zero/placement.h"

namespace nought {

namespace {

/// Elements that are quantized at a time.
constexpr int64_t kAtOnce = int64_t{1} << 20;

void require_finite(const Context& context, const Tensor& scales, const Parameter& parameter) {
  const std::vector<float> values = context.to_host<float>(scales);
  require(std::all_of(values.begin(), values.end(), [](float scale) { return std::isfinite(scale); }),
          "{} holds a value that is not finite, or too large for 8-bit codes", parameter.name);
}

/// The blocks of what this rank holds are blocks of the whole tensor: so the codes are those of one rank.
void require_whole_blocks(const Parameter& parameter, const Mesh& mesh) {
  const TensorPart part = part_held(parameter, mesh);
  for (const Interval& columns : part.kept().back())
    require<ConfigError>(
        columns.begin % kCodeBlock == 0 && columns.size() % kCodeBlock == 0,
        "parameter {} cannot be kept quantized to 8 bits: ranks share its rows of {}, and not in whole "
        "blocks of {}",
        parameter.name, parameter.placement.global[-1], kCodeBlock);
}

}  // namespace

void load_codes(const Context& context, const Mesh& mesh, const StateSource& source, const Unit& unit, size_t segment,
                Interval kept, const Weight& stored) {
  for (const ParameterPiece& piece : pieces_in(unit, segment, kept)) {
    const Parameter& parameter = unit.parameters()[piece.parameter];
    require_whole_blocks(parameter, mesh);
    const Interval whole = piece.in_parameter;
    for (int64_t begin = whole.begin; begin < whole.end; begin += kAtOnce) {
      const Interval stretch{begin, std::min(whole.end, begin + kAtOnce)};
      const Tensor x = context.empty({stretch.size()}, DType::f32, Category::workspace);
      fill(context, source, StateKind::master, parameter, global_elements(parameter, mesh, stretch), x);
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
