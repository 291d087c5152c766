// Replicas compared by hashes: what all data-parallel ranks must hold bit by bit is the same on all of them.
//
// What can be compared follows from the ZeRO stage. The parameters: at stages 0 to 2 every rank has all of them. At
// stage 3 a shard is on one rank alone, and what is compared is what the ranks gather; so a damaged copy is found, and
// a damaged shard, which is gathered alike by all, is not. The optimizer states: at stage 0 every rank has all of them;
// from stage 1 on each has its own. The numbers that a model keeps beside its parameters: every rank has them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "nought/zero/sharded_model.h"

namespace nought {

/// What differs among hashes, [ranks x tensors].
struct ReplicaDifference {
  std::vector<size_t> tensors;  // in which ranks differ; empty: nothing does
  std::vector<int> ranks;       // that differ from more than half of all ranks in one of them
  bool majority = true;         // false: no value of one of them is held by more than half of the ranks
};
ReplicaDifference compare_replicas(std::span<const int64_t> hashes, int ranks);

/// Compares the ranks that read different samples. If they differ, all ranks throw the same Error, which names the
/// tensors, the ranks that hold other bits than most, and their hosts. last_saved: the checkpoint to go back to; empty:
/// there is none. Collective.
void require_same_replicas(ShardedModel& model, int64_t step, const std::filesystem::path& last_saved);

}  // namespace nought
