// locate_nonfinite(): finds where the first value of a step became NaN or infinite: in which parameter, or in which
// Unit, operation and result, and on which rank.
#pragma once

#include <span>
#include <string>

#include "nought/data/sampler.h"
#include "nought/engine/step_schedule.h"
#include "nought/zero/sharded_model.h"

namespace nought {

/// Repeats the step's forward and backward passes, checks the result of every operation, and discards the gradients.
/// Collective: every rank calls it with its own batches. All get the text of the first rank that found something:
/// "rank 1: block.3.mlp, backward, MatMul: c [768, 3072] f32 holds 3 nan and 1 inf". gradient_scale is that of
/// Model::loss.
std::string locate_nonfinite(ShardedModel& model, const StepSchedule& schedule, std::span<const Batch> micro_batches,
                             double gradient_scale);

}  // namespace nought
