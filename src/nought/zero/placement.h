// The arithmetic of placements: which elements of a global tensor a rank holds, and how they get from one placement to
// another. Partition cuts what a rank holds once more, over the ranks that share it.
//
// A part of a tensor is a product of intervals, several per dimension where fused tensors are cut one by one. Its
// elements lie in the rank's memory in the order of the global tensor.
#pragma once

#include <vector>

#include "nought/autograd/unit.h"
#include "nought/comm/mesh.h"
#include "nought/zero/partition.h"

namespace nought {

/// Elements that follow one another both in a rank's memory and in the flattened global tensor.
struct PartRun {
  Interval local, global;
  friend bool operator==(const PartRun&, const PartRun&) = default;
};

/// One part of a tensor: what a rank holds.
class TensorPart {
 public:
  /// kept: for each dimension the intervals that the part has of it, rising, none touching the next.
  TensorPart(const Shape& global, std::vector<std::vector<Interval>> kept);

  const Shape& global() const { return global_; }
  /// The shape in the rank's memory.
  const Shape& local() const { return local_; }

  /// For each dimension the intervals that the part has of it.
  const std::vector<std::vector<Interval>>& kept() const { return kept_; }

  /// Where elements `local` of the flattened part lie, in order: what a shard of a Partition is, say. Nothing for an
  /// empty interval, wherever it is.
  std::vector<PartRun> runs(Interval local) const;
  std::vector<PartRun> runs() const { return runs({0, local_.numel()}); }

 private:
  /// Where a row begins in the global tensor. A row is the last dimension that is cut, at one index of the dimensions
  /// before.
  int64_t global_begin_of_row(int64_t row) const;

  Shape global_, local_;
  std::vector<std::vector<Interval>> kept_;
  int last_cut_ = -1;  // the last dimension of which the part has not all
  int64_t tail_ = 1;   // elements of the dimensions behind it
};

/// A placement on a grid of ranks. Its parts are those of the global tensor or, with a tile, of that.
class PlacedTensor {
 public:
  /// ShapeError if a cut does not fit the shape or another cut.
  PlacedTensor(const Placement& placement, const Grid& grid);

  /// How many different parts there are. All ranks of the grid hold one, and every part is held by as many ranks.
  int parts() const { return parts_; }
  /// Which part a rank holds.
  int part_of(int rank) const;
  TensorPart part(int index) const;
  TensorPart held_by(int rank) const { return part(part_of(rank)); }

 private:
  Placement placement_;
  Grid grid_;
  int parts_ = 1;
};

/// What this rank holds of a parameter.
TensorPart part_held(const Parameter& parameter, const Mesh& mesh);
/// Where elements `local` of that lie in the flattened global tensor, one behind the other.
std::vector<Interval> global_elements(const Parameter& parameter, const Mesh& mesh, Interval local);
/// ShapeError or ConfigError that names the parameter unless its shape is that of the part which this rank holds.
void check_placement(const Parameter& parameter, const Mesh& mesh);

/// The ranks that share out the states of what is cut along these axes, and add up its gradients: experts have theirs.
Group sharing_group(Axes cut_along);
/// The ranks that hold the other parts of what is cut along the axis; Error for one along which nothing is cut.
Communicator& ranks_along(Axis axis, const Mesh& mesh);

/// What a segment holds is held, shard by shard, by ranks that differ along axes which do not cut it. True on one of
/// them, which writes it to files.
bool writes_for_all(const Segment& segment, const Mesh& mesh);
/// Elements of this rank's shard that it counts in sums over all elements, each of which one rank counts. Replicas
/// share the shard out: they count what they would own if all of them had formed one group.
Interval counted_for_all(const Segment& segment, const Partition& partition, const Mesh& mesh);
/// What counted_for_all() has of the shard of each virtual rank that this rank stands for; nothing of the others.
std::vector<Interval> counted_by_virtual_ranks(const Segment& segment, const Partition& partition, const Mesh& mesh);

/// Elements that go from one part to another without a gap in either: [from, from + size) of the flattened source part
/// to [to, to + size) of the flattened target part.
struct Transfer {
  int part = 0;  // of the source
  int64_t from = 0, to = 0, size = 0;
  friend bool operator==(const Transfer&, const Transfer&) = default;
};

/// What part `index` of `target` gets, rising in `to`; each of its elements once. Both place the same global shape.
std::vector<Transfer> reshard(const PlacedTensor& source, const PlacedTensor& target, int index);

}  // namespace nought
