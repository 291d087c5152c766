// RankLocalTensor: a tensor of a run that this rank has for itself, beside the states that ranks share out: what its
// compression has not sent yet, or weights that have left those of the other ranks.
//
// Design goals: whoever keeps such tensors lists them (ShardedModel::keep_for_rank), and knows nothing of files. Saved
// by a rank, they are read by the same rank of the same mesh (checkpoint/checkpoint_rank_states). Non-goals: another
// layout, for which they have no meaning.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "nought/tensor/tensor.h"

namespace nought {

struct RankLocalTensor {
  std::string name;  // unique on the rank: what it is, a slash, and of what: "worker_error/block.3.0"
  Tensor tensor;     // where it is kept; loading overwrites it
};

/// Lists the tensors as they are now; on every rank in the same order.
using ListRankLocalTensors = std::function<std::vector<RankLocalTensor>()>;

}  // namespace nought
