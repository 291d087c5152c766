#include "nought/zero/partition.h"

namespace nought {

std::vector<Piece> pieces_in(const Unit& unit, Interval interval) {
  std::vector<Piece> pieces;
  const auto& parameters = unit.parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Interval common = intersect(parameters[i].range, interval);
    if (common.empty()) continue;
    const int64_t begin = parameters[i].range.begin;
    pieces.push_back({i, {common.begin - begin, common.end - begin}, common});
  }
  return pieces;
}

std::vector<DecayRun> decay_runs(const Unit& unit, Interval interval, bool decay_all) {
  std::vector<DecayRun> runs;
  for (const Piece& piece : pieces_in(unit, interval)) {
    const bool decay = decay_all || unit.parameters()[piece.parameter].decay;
    if (!runs.empty() && runs.back().decay == decay) {
      runs.back().in_unit.end = piece.in_unit.end;
    } else {
      runs.push_back({piece.in_unit, decay});
    }
  }
  return runs;
}

}  // namespace nought
