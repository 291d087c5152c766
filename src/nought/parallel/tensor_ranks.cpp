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
  if (!several()) return unit.add(std::move(name), whole.global, init, role);
  const Cut cut{.axis = axis_, .dim = whole.dim, .fused = whole.fused};
  int64_t held = 0;
  for (const Interval& interval : indices_of_part(whole.global[whole.dim], cut, rank(), size()))
    held += interval.size();
  Shape shape;
  for (int dim = 0; dim < whole.global.rank(); ++dim) shape.push_back(dim == whole.dim ? held : whole.global[dim]);
  return unit.add(std::move(name), shape, init,
                  ParameterOptions{.role = role, .placement = Placement{whole.global, {cut}}});
}

ParameterView TensorRanks::add_partial(Unit& unit, std::string name, Shape shape, Init init, ParameterRole role) const {
  ParameterOptions options{.role = role};
  if (several()) options.partial_along.add(axis_);
  return unit.add(std::move(name), shape, init, options);
}

}  // namespace nought
