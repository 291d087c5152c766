#include "nought/parallel/tensor_ranks.h"

#include <utility>

namespace nought {

TensorRanks::TensorRanks(const Mesh& mesh, Axis axis) : axis_(axis) {
  require(axis == Axis::tensor || axis == Axis::expert_tensor, "matrices are not cut along the {} axis", name_of(axis));
  Communicator& group = mesh.group(axis == Axis::tensor ? Group::tensor : Group::expert_tensor);
  if (group.size() > 1) group_ = &group;
}

Communicator& TensorRanks::group() const {
  require(group_ != nullptr, "one rank holds whole matrices: there is no group that shares them");
  return *group_;
}

Interval TensorRanks::part(int64_t extent, int rank) const {
  const std::vector<Interval> indices = indices_of_part(extent, Cut{}, rank, size());
  return indices.empty() ? Interval{extent, extent} : indices.front();
}

ParameterView TensorRanks::add(Unit& unit, std::string name, const Whole& whole, Init init, ParameterRole role) const {
  if (!several() && !whole.tile) return unit.add(std::move(name), whole.global, init, role);
  Placement placement{.global = whole.global, .tile = whole.tile};
  Shape shape = placement.extents();
  if (several()) {
    Cut cut{.axis = axis_, .dim = whole.dim, .fused = whole.fused};
    if (whole.tile && !cut.fused.empty()) {
      cut.fused.clear();
      for (const Interval& interval : whole.tile->kept) cut.fused.push_back(interval.size());
    }
    int64_t held = 0;
    for (const Interval& interval : indices_of_part(shape[whole.dim], cut, rank(), size())) held += interval.size();
    Shape cut_shape;
    for (int dim = 0; dim < shape.rank(); ++dim) cut_shape.push_back(dim == whole.dim ? held : shape[dim]);
    shape = cut_shape;
    placement.cuts.push_back(std::move(cut));
  }
  return unit.add(std::move(name), shape, init, ParameterOptions{.role = role, .placement = std::move(placement)});
}

ParameterView TensorRanks::add_partial(Unit& unit, std::string name, Shape shape, Init init, ParameterRole role) const {
  ParameterOptions options{.role = role};
  if (several()) options.partial_along.add(axis_);
  return unit.add(std::move(name), shape, init, options);
}

}  // namespace nought
