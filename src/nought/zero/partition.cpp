#include "nought/zero/partition.h"

namespace nought {

std::vector<ParameterPiece> pieces_in(const Unit& unit, Interval interval) {
  std::vector<ParameterPiece> pieces;
  const auto& parameters = unit.parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Interval common = intersect(parameters[i].range, interval);
    if (common.empty()) continue;
    const int64_t begin = parameters[i].range.begin;
    pieces.push_back({i, {common.begin - begin, common.end - begin}, common});
  }
  return pieces;
}

}  // namespace nought
