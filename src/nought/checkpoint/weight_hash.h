// hash_weights(): one SHA-256 of all weights of a model, the same whatever ranks or files hold of them.
//
// What is hashed are masters, and frozen parameters, as fp32 values, a stretch of 1 Mi elements of each flattened
// tensor at a time; the hash of a tensor is that of the hashes of its stretches, and the whole that of all tensors by
// name. A stretch that lies on one rank is hashed there, and nothing of it travels. Others are put together, a few
// elements at a time, so that no rank needs room for a stretch. Non-goals: the sign of a zero, and optimizer states.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "nought/checkpoint/checkpoint.h"
#include "nought/zero/sharded_model.h"

namespace nought {

/// The memory that values pass through on their way to a hash. A plan has it, too.
struct HashRoom {
  static constexpr int64_t kElements = int64_t{1} << 16;  // so many at a time

  HashRoom(const Context& context, int ranks);
  Tensor read, sum;  // of this rank's values on the host, and of several ranks' on the device
};

/// with_frozen: unless frozen parameters are an adapter's base. Between steps. Collective; all ranks get the hash.
std::string hash_weights(ShardedModel& model, bool with_frozen);

/// Hashes what a checkpoint holds: the hash is that of the model which was saved. dtype: values are rounded to it
/// first. IoError for a block that is damaged.
std::string hash_weights(const Checkpoint& checkpoint, DType dtype = DType::f32);
/// And of the weights that a source has of a model. counts: whether a parameter is hashed; null: all are.
std::string hash_weights(const StateSource& source, const Model& model, DType dtype = DType::f32,
                         const std::function<bool(const Parameter&)>& counts = {});

}  // namespace nought
