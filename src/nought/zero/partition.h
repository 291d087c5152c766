// Partition: which elements of a segment's flat buffer each rank owns, and what parameters they are.
//
// All interval arithmetic of sharding, master weights, moments, checkpoints and resharding lives here. The flat buffer
// of a segment of `size` elements is padded to `ranks` equal shards; rank r owns [r * shard, (r + 1) * shard).
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "nought/autograd/unit.h"

namespace nought {

/// A segment of one of a model's Units.
struct SegmentIndex {
  size_t unit = 0;     // in Model::units()
  size_t segment = 0;  // in Unit::segments()
  friend bool operator==(const SegmentIndex&, const SegmentIndex&) = default;
};
/// The segments of all Units that are trained, or that are not, in the order of the Units; without Units that other
/// ranks hold.
std::vector<SegmentIndex> segments_of(const std::vector<std::unique_ptr<Unit>>& units, bool trainable);

/// A part of one parameter, and where it lies in the flat buffer of its segment.
struct ParameterPiece {
  size_t parameter = 0;   // index in Unit::parameters()
  Interval in_parameter;  // elements of the flattened parameter
  Interval in_segment;    // elements of the flat buffer
};

class Partition {
 public:
  /// Shards are multiples of this many elements, so that every shard starts at a cache line.
  static constexpr int64_t kAlignment = 32;

  Partition() = default;
  Partition(int64_t size, int ranks, int64_t alignment = kAlignment) : size_(size), ranks_(ranks) {
    shard_ = round_up(ceil_div(size, ranks), alignment);
  }
  /// Cuts a segment. Shards of codes are multiples of so many blocks that every rank's shard of the scales has the
  /// scales of its codes. Each of virtual_ranks, a multiple of the ranks, owns what it owned among as many ranks; 0:
  /// the ranks.
  Partition(const Segment& segment, int ranks, int virtual_ranks = 0)
      : Partition(segment.size, ranks,
                  (segment.content == SegmentContent::codes ? kAlignment * kCodeBlockBytes : kAlignment) *
                      std::max(virtual_ranks / ranks, 1)) {
    virtual_shards_ = std::max(virtual_ranks / ranks, 1);
  }

  int64_t size() const { return size_; }
  int64_t shard() const { return shard_; }
  int64_t padded() const { return shard_ * ranks_; }
  int ranks() const { return ranks_; }
  /// How many virtual ranks a shard is of, and what each of them has of it.
  int virtual_shards() const { return virtual_shards_; }
  Interval virtual_shard(int index) const {
    const int64_t each = shard_ / virtual_shards_;
    return {index * each, (index + 1) * each};
  }
  /// The elements that a rank owns; the last ones may lie in the padding.
  Interval owned(int rank) const { return {rank * shard_, (rank + 1) * shard_}; }

 private:
  int64_t size_ = 0, shard_ = 0;
  int ranks_ = 1, virtual_shards_ = 1;
};

/// The parts of parameters that lie in `interval` of a segment's flat buffer, in order; padding belongs to none.
std::vector<ParameterPiece> pieces_in(const Unit& unit, size_t segment, Interval interval);
/// What lies between the parameters of a segment and behind the last of them, up to `end`: nobody writes it.
std::vector<Interval> gaps_in(const Unit& unit, size_t segment, int64_t end);

}  // namespace nought
