#include "nought/zero/partition.h"

namespace nought {

std::vector<SegmentIndex> segments_of(const std::vector<std::unique_ptr<Unit>>& units, bool trainable) {
  std::vector<SegmentIndex> found;
  for (size_t unit = 0; unit < units.size(); ++unit)
    for (size_t segment = 0; segment < units[unit]->segments().size(); ++segment)
      if (units[unit]->segments()[segment].trainable == trainable && !units[unit]->elsewhere())
        found.push_back({unit, segment});
  return found;
}

std::vector<ParameterPiece> pieces_in(const Unit& unit, size_t segment, Interval interval) {
  std::vector<ParameterPiece> pieces;
  for (const size_t i : unit.segments()[segment].parameters) {
    const Interval range = unit.parameters()[i].range, common = intersect(range, interval);
    if (common.empty()) continue;
    pieces.push_back({i, {common.begin - range.begin, common.end - range.begin}, common});
  }
  return pieces;
}

std::vector<Interval> gaps_in(const Unit& unit, size_t segment, int64_t end) {
  std::vector<Interval> gaps;
  int64_t reached = 0;
  const auto add = [&](int64_t begin) {
    if (reached < begin) gaps.push_back({reached, begin});
  };
  for (const size_t i : unit.segments()[segment].parameters) {
    const Interval range = unit.parameters()[i].range;
    add(range.begin);
    reached = range.end;
  }
  add(end);
  return gaps;
}

}  // namespace nought
