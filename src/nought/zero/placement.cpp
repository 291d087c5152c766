#include "nought/zero/placement.h"

#include <algorithm>
#include <numeric>

#include "nought/base/error.h"

namespace nought {
namespace {

int64_t length_of(const std::vector<Interval>& intervals) {
  int64_t length = 0;
  for (const Interval& interval : intervals) length += interval.size();
  return length;
}

/// Where index `local` of the kept ones lies in the dimension.
int64_t global_index(const std::vector<Interval>& kept, int64_t local) {
  for (const Interval& interval : kept) {
    if (local < interval.size()) return interval.begin + local;
    local -= interval.size();
  }
  fail("index {} beyond what a part has of a dimension", local);
}

/// Where indices `local` of those that a tile keeps lie in the dimension, rising.
std::vector<Interval> within(const std::vector<Interval>& kept, const std::vector<Interval>& local) {
  std::vector<Interval> found;
  int64_t begin = 0;
  for (const Interval& interval : kept) {
    for (const Interval& wanted : local) {
      const Interval common = intersect(wanted, {begin, begin + interval.size()});
      if (common.empty()) continue;
      const int64_t from = interval.begin + common.begin - begin;
      found.push_back({from, from + common.size()});
    }
    begin += interval.size();
  }
  return found;
}

/// True for axes of the experts' grid.
bool of_experts(Axes axes) { return axes.meets({Axis::expert_tensor, Axis::expert}); }

void check(const Placement& placement) {
  const std::vector<Cut>& cuts = placement.cuts;
  if (const std::optional<TensorTile>& tile = placement.tile)
    require<ShapeError>(0 <= tile->dim && tile->dim < placement.global.rank(), "a tile along dimension {} of {}",
                        tile->dim, placement.global);
  const Shape extents = placement.extents();
  require<ShapeError>(on_one_grid(placement.axes()),
                      "a tensor {} is cut along an expert axis and one that experts do not have", placement.global);
  for (size_t i = 0; i < cuts.size(); ++i) {
    const Cut& one = cuts[i];
    require<ShapeError>(0 <= one.dim && one.dim < placement.global.rank(), "a cut of dimension {} of a tensor {}",
                        one.dim, placement.global);
    const int64_t extent = extents[one.dim];
    require<ShapeError>(one.granule > 0, "a cut of dimension {} of {} in multiples of {}", one.dim, placement.global,
                        one.granule);
    require<ShapeError>(one.fused.empty() || std::accumulate(one.fused.begin(), one.fused.end(), int64_t{0}) == extent,
                        "the fused tensors along dimension {} of {} have {} indices together", one.dim,
                        placement.global, std::accumulate(one.fused.begin(), one.fused.end(), int64_t{0}));
    for (size_t k = 0; k < i; ++k) {
      const bool one_dim = cuts[k].dim == one.dim && !cuts[k].owner && !one.owner;
      require<ShapeError>(!one_dim && cuts[k].axis != one.axis,
                          "two cuts of dimensions {} and {} of {} along the axes {} and {}: both must differ",
                          cuts[k].dim, one.dim, placement.global, name_of(cuts[k].axis), name_of(one.axis));
    }
  }
}

}  // namespace

TensorPart::TensorPart(const Shape& global, std::vector<std::vector<Interval>> kept)
    : global_(global), kept_(std::move(kept)) {
  require<ShapeError>(kept_.size() == static_cast<size_t>(global_.rank()), "a box of {} dimensions of a tensor {}",
                      kept_.size(), global_);
  for (int dim = 0; dim < global_.rank(); ++dim) {
    const std::vector<Interval>& intervals = kept_[static_cast<size_t>(dim)];
    for (const Interval& interval : intervals)
      require<ShapeError>(0 <= interval.begin && interval.begin <= interval.end && interval.end <= global_[dim],
                          "[{}, {}) of dimension {} of {}", interval.begin, interval.end, dim, global_);
    local_.push_back(length_of(intervals));
    if (local_[dim] != global_[dim]) last_cut_ = dim;
  }
  for (int dim = last_cut_ + 1; dim < global_.rank(); ++dim) tail_ *= global_[dim];
}

int64_t TensorPart::global_begin_of_row(int64_t row) const {
  int64_t begin = 0, stride = tail_ * global_[last_cut_];
  for (int dim = last_cut_ - 1; dim >= 0; --dim) {
    begin += global_index(kept_[static_cast<size_t>(dim)], row % local_[dim]) * stride;
    row /= local_[dim];
    stride *= global_[dim];
  }
  return begin;
}

std::vector<PartRun> TensorPart::runs(Interval local) const {
  if (local.empty()) return {};
  require<ShapeError>(0 <= local.begin && local.end <= local_.numel(), "elements [{}, {}) of a part {}", local.begin,
                      local.end, local_);
  if (last_cut_ < 0) return {{local, local}};
  const std::vector<Interval>& cut = kept_[static_cast<size_t>(last_cut_)];
  const int64_t row_length = local_[last_cut_] * tail_;
  std::vector<PartRun> runs;
  for (int64_t row = local.begin / row_length; row * row_length < local.end; ++row) {
    const int64_t global_row = global_begin_of_row(row);
    int64_t begin = row * row_length;  // of the interval in the flattened part
    for (const Interval& interval : cut) {
      const Interval here = intersect(local, {begin, begin + interval.size() * tail_});
      const int64_t global = global_row + interval.begin * tail_ + here.begin - begin;
      begin += interval.size() * tail_;
      if (here.empty()) continue;
      if (!runs.empty() && runs.back().global.end == global) {
        runs.back().local.end = here.end, runs.back().global.end = global + here.size();
      } else {
        runs.push_back({here, {global, global + here.size()}});
      }
    }
  }
  return runs;
}

PlacedTensor::PlacedTensor(const Placement& placement, const Grid& grid) : placement_(placement), grid_(grid) {
  check(placement_);
  for (const Cut& cut : placement_.cuts) {
    const int parts = grid_.size(cut.axis);
    require<ShapeError>(!cut.owner || (0 <= *cut.owner && *cut.owner < parts),
                        "a tensor {} belongs to rank {} along the axis {}, which has {}", placement_.global,
                        cut.owner.value_or(0), name_of(cut.axis), parts);
    parts_ *= parts;
  }
}

int PlacedTensor::part_of(int rank) const {
  int part = 0;
  for (const Cut& cut : placement_.cuts) part = part * grid_.size(cut.axis) + grid_.coordinate(rank, cut.axis);
  return part;
}

TensorPart PlacedTensor::part(int index) const {
  require(0 <= index && index < parts_, "part {} of a tensor {} that has {}", index, placement_.global, parts_);
  std::vector<std::vector<Interval>> kept;
  const Shape extents = placement_.extents();
  for (const int64_t extent : extents) kept.push_back({{0, extent}});
  std::vector<size_t> elsewhere;  // dimensions of which another part has everything
  for (size_t i = placement_.cuts.size(); i-- > 0;) {
    const Cut& one = placement_.cuts[i];
    const int parts = grid_.size(one.axis);
    const auto dim = static_cast<size_t>(one.dim);
    if (!one.owner) {
      kept[dim] = indices_of_part(extents[one.dim], one, index % parts, parts);
    } else if (!one.holds(index % parts)) {
      elsewhere.push_back(dim);
    }
    index /= parts;
  }
  if (const std::optional<TensorTile>& tile = placement_.tile) {
    std::vector<Interval>& along = kept[static_cast<size_t>(tile->dim)];
    along = within(tile->kept, along);
  }
  for (const size_t dim : elsewhere) kept[dim].clear();
  return {placement_.global, std::move(kept)};
}

TensorPart part_held(const Parameter& parameter, const Mesh& mesh) {
  return PlacedTensor(parameter.placement, mesh.grid()).held_by(mesh.world().rank());
}

std::vector<Interval> global_elements(const Parameter& parameter, const Mesh& mesh, Interval local) {
  if (parameter.placement.is_whole()) return {local};
  std::vector<Interval> elements;
  for (const PartRun& run : part_held(parameter, mesh).runs(local)) elements.push_back(run.global);
  return elements;
}

void check_placement(const Parameter& parameter, const Mesh& mesh) {
  for (const Cut& cut : parameter.placement.cuts)
    require<ConfigError>(cut.axis == Axis::tensor || cut.axis == Axis::expert || cut.axis == Axis::expert_tensor ||
                             (cut.axis == Axis::pipeline && cut.owner),
                         "parameter {} is cut along the axis {}: only cuts along {}, {} and {} are stored",
                         parameter.name, name_of(cut.axis), name_of(Axis::tensor), name_of(Axis::expert),
                         name_of(Axis::expert_tensor));
  const Axes axes = parameter.placement.axes();
  require<ConfigError>(!axes.has(Axis::expert_tensor) || axes.has(Axis::expert) || mesh.grid().size(Axis::expert) == 1,
                       "parameter {} is cut along the axis {} alone: ranks that hold different experts cannot share it",
                       parameter.name, name_of(Axis::expert_tensor));
  const Shape held = part_held(parameter, mesh).local();
  require<ShapeError>(held == parameter.shape, "parameter {} has shape {}; by its placement this rank holds {} of {}",
                      parameter.name, parameter.shape, held, parameter.placement.global);
}

Group sharing_group(Axes cut_along) { return of_experts(cut_along) ? Group::expert_parameters : Group::parameters; }

namespace {

/// All replicas agree on it: true on one of the ranks of each that hold the shard.
bool stands_for_replica(const Segment& segment, const Mesh& mesh) {
  const Axes cut_along = segment.cut_along;
  const auto first_along = [&](Axis axis) { return cut_along.has(axis) || mesh.coordinate(axis) == 0; };
  if (segment.copied || !first_along(Axis::pipeline)) return false;
  if (!of_experts(cut_along)) return first_along(Axis::tensor);
  return first_along(Axis::expert_tensor) && first_along(Axis::expert);
}

}  // namespace

bool writes_for_all(const Segment& segment, const Mesh& mesh) {
  return mesh.coordinate(Axis::replicate) == 0 && stands_for_replica(segment, mesh);
}

Interval counted_for_all(const Segment& segment, const Partition& partition, const Mesh& mesh) {
  if (!stands_for_replica(segment, mesh)) return {};
  const Interval shard{0, partition.shard()};
  const Partition over_replicas(shard.size(), mesh.grid().size(Axis::replicate));
  return intersect(shard, over_replicas.owned(mesh.coordinate(Axis::replicate)));
}

std::vector<Interval> counted_by_virtual_ranks(const Segment& segment, const Partition& partition, const Mesh& mesh) {
  const Interval counted = counted_for_all(segment, partition, mesh);
  std::vector<Interval> each;
  for (int i = 0; i < partition.virtual_shards(); ++i) {
    const Interval part = intersect(counted, partition.virtual_shard(i));
    if (!part.empty()) each.push_back(part);
  }
  return each;
}

Communicator& ranks_along(Axis axis, const Mesh& mesh) {
  switch (axis) {
    case Axis::tensor:
      return mesh.group(Group::tensor);
    case Axis::expert:
      return mesh.group(Group::experts);
    case Axis::expert_tensor:
      return mesh.group(Group::expert_tensor);
    case Axis::pipeline:
      return mesh.group(Group::pipeline);
    default:
      fail("nothing is cut along the axis {}", name_of(axis));
  }
}

std::vector<Transfer> reshard(const PlacedTensor& source, const PlacedTensor& target, int index) {
  const TensorPart wanted = target.part(index);
  const std::vector<PartRun> runs = wanted.runs();
  std::vector<Transfer> all;
  for (int part = 0; part < source.parts(); ++part) {
    const TensorPart there = source.part(part);
    require<ShapeError>(there.global() == wanted.global(), "a tensor {} cannot become {}", there.global(),
                        wanted.global());
    const std::vector<PartRun> held = there.runs();
    for (auto from = held.begin(), to = runs.begin(); from != held.end() && to != runs.end();) {
      const Interval common = intersect(from->global, to->global);
      if (!common.empty())
        all.push_back({part, from->local.begin + common.begin - from->global.begin,
                       to->local.begin + common.begin - to->global.begin, common.size()});
      from->global.end < to->global.end ? ++from : ++to;  // both rise
    }
  }
  std::sort(all.begin(), all.end(), [](const Transfer& a, const Transfer& b) { return a.to < b.to; });
  std::vector<Transfer> joined;
  for (const Transfer& next : all) {
    const bool follows = !joined.empty() && joined.back().part == next.part &&
                         joined.back().from + joined.back().size == next.from &&
                         joined.back().to + joined.back().size == next.to;
    if (follows) {
      joined.back().size += next.size;
    } else {
      joined.push_back(next);
    }
  }
  return joined;
}

}  // namespace nought
