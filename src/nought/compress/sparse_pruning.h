// SparsePruning: which layers of a model compute without some of their weights, and from which step on: DeepSpeed's
// compression_training.sparse_pruning with the method l1.
//
// Design goals: the masks are those of the weights that the run began with, and count from the offset on, as DeepSpeed
// has it. Where a weight is taken as 0 it has no gradient. Non-goals: learned scores (topk), and snip_momentum.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace nought {

/// One of different_groups.
struct PrunedGroup {
  std::string name;
  std::vector<std::string> modules;  // regular expressions that are searched for in the names of layers
  double dense_ratio = 0.5;          // of the weights of a matrix, the largest, which stay

  bool operator==(const PrunedGroup&) const = default;
};

struct SparsePruning {
  int64_t schedule_offset = 1000;  // updates before the first step without the others
  std::vector<PrunedGroup> groups = {};

  /// "50% of the weights, from step 1001 on".
  std::string describe(const PrunedGroup& group) const;
};

}  // namespace nought
