// Steps whose ranks send one bit per element, or factors of gradients, as a dry run makes them: the first ones, which
// send everything, are few, and what follows is what most steps of the run are.
#pragma once

#include "nought/zero/sharded_model.h"

namespace nought {

/// The options of a run of so many updates for a dry run: if the run gets to compressed updates, the dry run does
/// after updates_before_compression(). Of 0/1 Adam these are the updates in which the ranks synchronize.
ShardedModel::Options with_early_compression(ShardedModel::Options options, int64_t updates);
/// How many updates of such a dry run come before all further ones are of one kind; 0 without compression.
int64_t updates_before_compression(const ShardedModel::Options& options);

}  // namespace nought
