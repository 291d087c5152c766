// SegmentGradients: the gradients of one trained segment on this rank, from the first product that writes to them until
// they are the sum over all ranks. The Reducer has one for each, and its Reductions work on them.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "nought/comm/communicator.h"
#include "nought/zero/gradient_store.h"
#include "nought/zero/partition.h"
#include "nought/zero/policy.h"
#include "nought/zero/tree_sums.h"

namespace nought {

/// The gradients of a whole segment while they are added up.
struct WholeGradients {
  Tensor values = {};
  std::vector<bool> written = {};  // for each parameter of the Unit: its gradient has begun
  struct Part {
    Interval range;
    Tensor values;
  };
  std::vector<Part> early = {};  // until there are `values`
  int64_t micro_batch = 0;       // the one that they belong to, where each has its own
};

struct SegmentGradients {
  SegmentIndex at = {};
  const Unit* unit = nullptr;
  Communicator* ranks = nullptr;  // that share it out
  Policy policy = {};
  Partition partition = {};
  std::vector<Interval> gaps = {};                    // no parameter fills them
  WholeGradients whole = {};                          // all micro-batches add to it; unused with gradient sharding
  Tensor shard = {};                                  // permanent, with gradient sharding, unless it is in a file
  bool shard_begun = false;                           // it has, or the file
  TreeSums tree = {};                                 // adds up micro-batches; its sum is `whole` or the shard
  std::optional<size_t> stored = {};                  // its number in the store
  std::optional<GradientStore::Arrival> coming = {};  // its whole gradients, from there
  int open = 0;                                       // micro-batches that have begun to add to these
  bool finished = false;                              // the reduction of the step's last micro-batch has begun
  bool completed = false;                             // and what it brought is there
  bool in_place = false;                              // `reduction` tells when it is
  bool crossed = false;                               // the sum over the replicas of a sharded gradient has begun
  Event reduction = {};
  Event arrival = {};            // on the host
  size_t bucket = 0, place = 0;  // it is the bucket's member at that place

  /// Its whole gradients are in a file.
  bool swaps_whole() const { return stored && !policy.shard_gradients; }
};

}  // namespace nought
