#include "nought/compress/qat.h"

#include <fmt/core.h>

namespace nought {

std::optional<InputRounding> Qat::inputs() const {
  if (mode == QatMode::int4 || mode == QatMode::int8 || mode == QatMode::mxfp4) return {};
  return InputRounding{.grid = mode == QatMode::int8_int4 ? RowGrid::affine : RowGrid::e4m3,
                       .start = start_step,
                       .section = "training.qat",
                       .groups = {{.name = std::string(name_of(mode)), .modules = {""}}}};
}

std::string Qat::describe() const {
  std::string text = groups_weights()        ? fmt::format("weights in 4 bits, groups of {}", group_size)
                     : mode == QatMode::int8 ? "weights in 8 bits, a scale a row"
                     : mode == QatMode::fp8  ? "weights in E4M3, squares of 128"
                                             : "weights in E2M1, groups of 32";
  if (const auto rounding = inputs())
    text +=
        rounding->grid == RowGrid::e4m3 ? ", inputs in E4M3, a scale a token" : ", inputs in 8 bits, a scale a token";
  return text + fmt::format(", from step {} on", start_step + 1);
}

std::string Qat::quantize_options() const {
  if (groups_weights()) return fmt::format("--format compressed-tensors --group-size {}", group_size);
  return fmt::format("--format {}", name_of(mode));
}

}  // namespace nought
