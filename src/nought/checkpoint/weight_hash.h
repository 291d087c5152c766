// hash_weights(): one SHA-256 of all weights of a model, the same whatever ranks hold of them.
//
// What is hashed are masters, and frozen parameters, as fp32 values, a stretch of 1 Mi elements of each flattened
// tensor at a time; the hash of a tensor is that of the hashes of its stretches, and the whole that of all tensors by
// name. A stretch that lies on one rank is hashed there, and nothing of it travels. Others are put together one at a
// time, so that no rank needs room for a tensor. Non-goals: the sign of a zero, and optimizer states.
#pragma once

#include <string>

#include "nought/zero/sharded_model.h"

namespace nought {

/// with_frozen: unless frozen parameters are an adapter's base. Between steps. Collective; all ranks get the hash.
std::string hash_weights(ShardedModel& model, bool with_frozen);

}  // namespace nought
