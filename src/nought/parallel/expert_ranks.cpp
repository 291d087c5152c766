#include "nought/parallel/expert_ranks.h"

#include <algorithm>
#include <utility>

namespace nought {

Interval ExpertRanks::held(int64_t experts, int rank) const {
  const std::vector<Interval> indices = indices_of_part(experts, Cut{}, rank, size());
  return indices.empty() ? Interval{experts, experts} : indices.front();
}

int ExpertRanks::holder(int64_t expert, int64_t experts) const {
  require(0 <= expert && expert < experts, "there is no expert {} among {}", expert, experts);
  return static_cast<int>(expert / ceil_div(experts, static_cast<int64_t>(size())));
}

Communicator& ExpertRanks::group() const {
  require(experts_ != nullptr, "one rank holds all experts: there is no group that shares them out");
  return *experts_;
}

ParameterView ExpertRanks::add_all(Unit& unit, std::string name, const Whole& whole, Init init,
                                   ParameterRole role) const {
  std::optional<Cut> cut;
  if (several()) cut = Cut{.axis = Axis::expert};
  return add(unit, std::move(name), whole, std::move(cut), init, role);
}

ParameterView ExpertRanks::add_one(Unit& unit, std::string name, int64_t expert, int64_t experts, const Whole& whole,
                                   Init init, ParameterRole role) const {
  std::optional<Cut> cut;
  if (several()) cut = Cut{.axis = Axis::expert, .owner = holder(expert, experts)};
  return add(unit, std::move(name), whole, std::move(cut), init, role);
}

ParameterView ExpertRanks::add(Unit& unit, std::string name, const Whole& whole, std::optional<Cut> over_experts,
                               Init init, ParameterRole role) const {
  require(!whole.tile || whole.fused.empty(), "{}: a tile of fused tensors", name);
  Placement placement{.global = whole.global, .tile = whole.tile};
  const Shape all = placement.extents();
  std::vector<int64_t> extents(all.begin(), all.end());
  const auto cut_off = [&](const Cut& cut, int rank, int ranks) {
    int64_t& extent = extents[static_cast<size_t>(cut.dim)];
    int64_t left = 0;
    for (const Interval& interval : indices_of_part(extent, cut, rank, ranks)) left += interval.size();
    extent = left;
    placement.cuts.push_back(cut);
  };
  // The inner cut is measured first: it is of a dimension of which an owner's peers may have nothing. It comes last
  // among the cuts, so that what is joined first are the matrices of an expert.
  ParameterOptions options{.role = role};
  if (whole.dim && tensor_.several())
    cut_off({.axis = Axis::expert_tensor, .dim = *whole.dim, .granule = whole.granule, .fused = whole.fused},
            tensor_.rank(), tensor_.size());
  if (over_experts) cut_off(*over_experts, rank(), size());
  std::reverse(placement.cuts.begin(), placement.cuts.end());
  if (whole.partial && tensor_.several()) options.partial_along.add(Axis::expert_tensor);
  if (!placement.is_whole()) options.placement = placement;
  Shape shape;
  for (const int64_t extent : extents) shape.push_back(extent);
  return unit.add(std::move(name), shape, init, options);
}

}  // namespace nought
