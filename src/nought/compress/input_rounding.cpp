#include "nought/compress/input_rounding.h"

#include <fmt/core.h>

namespace nought {

std::string InputRounding::describe(const InputGroup& group) const {
  const std::string number = grid == RowGrid::e4m3 ? "E4M3" : fmt::format("{} bits", group.bits);
  return fmt::format("inputs in {}, {}a scale a token, from step {} on", number,
                     grid == RowGrid::symmetric    ? "symmetric, "
                     : grid == RowGrid::asymmetric ? "asymmetric, "
                                                   : "",
                     start + 1);
}

}  // namespace nought
