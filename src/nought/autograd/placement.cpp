#include "nought/autograd/placement.h"

namespace nought {
namespace {

/// Appends, joined to the last one where they touch.
void append(std::vector<Interval>& intervals, Interval more) {
  if (more.empty()) return;
  if (!intervals.empty() && intervals.back().end == more.begin) {
    intervals.back().end = more.end;
  } else {
    intervals.push_back(more);
  }
}

}  // namespace

std::vector<Interval> indices_of_part(int64_t extent, const Cut& cut, int part, int parts) {
  if (cut.owner) {
    std::vector<Interval> all;
    if (cut.holds(part)) append(all, {0, extent});
    return all;
  }
  const std::vector<int64_t> tensors = cut.fused.empty() ? std::vector<int64_t>{extent} : cut.fused;
  std::vector<Interval> kept;
  int64_t begin = 0;
  for (const int64_t length : tensors) {
    const int64_t share = ceil_div(ceil_div(length, cut.granule), parts) * cut.granule;
    const Interval inside = intersect({part * share, (part + 1) * share}, {0, length});
    append(kept, {begin + inside.begin, begin + inside.end});
    begin += length;
  }
  return kept;
}

int64_t TensorTile::size() const {
  int64_t size = 0;
  for (const Interval& interval : kept) size += interval.size();
  return size;
}

TensorTile tile_of(const Shape& global, int dim, const std::vector<int64_t>& fused, int index, int count) {
  return {dim, indices_of_part(global[dim], Cut{.dim = dim, .fused = fused}, index, count)};
}

Shape Placement::extents() const {
  if (!tile) return global;
  Shape extents;
  for (int dim = 0; dim < global.rank(); ++dim) extents.push_back(dim == tile->dim ? tile->size() : global[dim]);
  return extents;
}

}  // namespace nought
