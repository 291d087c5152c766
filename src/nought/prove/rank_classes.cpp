#include "nought/prove/rank_classes.h"

#include <array>
#include <map>
#include <tuple>

#include "nought/comm/grid.h"

namespace nought {

namespace {

/// Where a rank stands, as far as its class depends on it.
using Standing = std::tuple<int, int, int, int, int>;  // stage, context, tensor, shard, replicate

/// 0 for the first, 1 for the second, 2 for the last, of which further ones are like the second.
int kind_of(int coordinate, int size) {
  if (coordinate == 0) return 0;
  return coordinate == size - 1 && size > 2 ? 2 : 1;
}

Standing standing(const Grid& grid, int rank) {
  const Grid::Coordinates at = grid.coordinates(rank);
  const auto coordinate = [&](Axis axis) { return at[static_cast<size_t>(axis)]; };
  const int stage = coordinate(Axis::pipeline), stages = grid.size(Axis::pipeline);
  const int context = coordinate(Axis::context);
  std::array<int, 3> others{};
  // Stages in between differ in their schedules alone, and so do the parts of sequences behind the first.
  const bool varied = context == 0 && (stage == 0 || stage == stages / 2 || stage == stages - 1);
  constexpr std::array kAxes{Axis::tensor, Axis::shard, Axis::replicate};
  for (size_t i = 0; varied && i < kAxes.size(); ++i)
    if (coordinate(kAxes[i]) > 0) {  // one axis at a time
      others[i] = kind_of(coordinate(kAxes[i]), grid.size(kAxes[i]));
      break;
    }
  return {stage, context, others[0], others[1], others[2]};
}

}  // namespace

RankClasses classes_of(const Layout& layout, int each_up_to) {
  const Grid grid(layout.grid());
  RankClasses classes;
  std::map<Standing, int> known;
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    int of_rank = static_cast<int>(classes.chosen.size());
    if (grid.ranks() > each_up_to) of_rank = known.emplace(standing(grid, rank), of_rank).first->second;
    if (of_rank == static_cast<int>(classes.chosen.size())) classes.chosen.push_back(rank);
    classes.class_of.push_back(of_rank);
  }
  return classes;
}

}  // namespace nought
