// with_stage_seconds(): measures what each Unit of a model takes, for a cut into pipeline stages of the same time.
#pragma once

#include "nought/comm/communicator.h"
#include "nought/config/run_plan.h"
#include "nought/kernels/kernels.h"
#include "nought/models/config.h"

namespace nought {

/// The plan, whose model has this config, with the seconds of a forward and a backward pass of a micro-batch through
/// each Unit, if its pipeline is to be cut by them and they are not there; else the plan as it is. The passes are those
/// of a model with random weights that has one layer of each kind, in memory of its own; ranks that share matrices run
/// them together, and no gradient is reduced. All ranks measure at once, and all get the mean of what they measured, so
/// that they agree on the cut. Collective.
RunPlan with_stage_seconds(RunPlan plan, const ModelConfig& config, Communicator& world, const Context& context);

}  // namespace nought
