// Policy: what is sharded over the data-parallel ranks. A ZeRO stage is a name for a policy (arXiv 1910.02054).
#pragma once

#include "nought/base/error.h"

namespace nought {

struct Policy {
  bool shard_optimizer = false;   // from stage 1 on: master weights and moments
  bool shard_gradients = false;   // from stage 2 on: gradients
  bool shard_parameters = false;  // at stage 3: parameters

  static Policy stage(int stage) {
    require<ConfigError>(0 <= stage && stage <= 3, "zero_optimization.stage must be 0, 1, 2 or 3, got {}", stage);
    return {stage >= 1, stage >= 2, stage >= 3};
  }
  /// A group of one has nothing to shard, and then nothing moves.
  Policy for_ranks(int ranks) const { return ranks == 1 ? Policy{} : *this; }
};

}  // namespace nought
