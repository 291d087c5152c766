// Finds the value that first went wrong in a step: the parameter, or the Unit, the operation and its result, and the
// rank.
#pragma once

#include <span>
#include <string>

#include "nought/data/sampler.h"
#include "nought/zero/sharded_model.h"

namespace nought {

/// Repeats the step's forward and backward with every result looked at, and forgets the gradients again. Collective:
/// every rank calls it with its own batches and gets the same text, of the first rank that found something:
/// "rank 1: block.3.mlp, backward, MatMul: c [768, 3072] f32 holds 3 nan and 1 inf". gradient_scale as in
/// Model::loss.
std::string locate_nonfinite(ShardedModel& model, std::span<const Batch> micro_batches, double gradient_scale);

}  // namespace nought
