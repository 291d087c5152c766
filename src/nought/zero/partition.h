// Partition: which elements of a Unit's flat buffer each rank owns, and what parameters they are.
//
// All interval arithmetic of sharding, master weights, moments, checkpoints and resharding lives here. A Unit's flat
// buffer of `size` elements is padded to `ranks` equal shards; rank r owns [r * shard, (r + 1) * shard).
#pragma once

#include <vector>

#include "nought/autograd/unit.h"

namespace nought {

/// A part of one parameter, and where it lies in its Unit's flat buffer.
struct ParameterPiece {
  size_t parameter = 0;   // index in Unit::parameters()
  Interval in_parameter;  // elements of the flattened parameter
  Interval in_unit;       // elements of the Unit's flat buffer
};

class Partition {
 public:
  /// Shards are multiples of this many elements, so that every shard starts at a cache line.
  static constexpr int64_t kAlignment = 32;

  Partition() = default;
  Partition(int64_t size, int ranks) : size_(size), ranks_(ranks) {
    shard_ = round_up(ceil_div(size, ranks), kAlignment);
  }

  int64_t size() const { return size_; }
  int64_t shard() const { return shard_; }
  int64_t padded() const { return shard_ * ranks_; }
  int ranks() const { return ranks_; }
  /// The elements of a rank; the last ones may lie in the padding.
  Interval owned(int rank) const { return {rank * shard_, (rank + 1) * shard_}; }

 private:
  int64_t size_ = 0, shard_ = 0;
  int ranks_ = 1;
};

/// The parts of parameters that lie in `interval` of the Unit's flat buffer, in order; padding belongs to none.
std::vector<ParameterPiece> pieces_in(const Unit& unit, Interval interval);

}  // namespace nought
