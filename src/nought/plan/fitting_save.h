// Whether there is room for what saving checkpoints beside the training takes (training.async_save).
#pragma once

#include "nought/comm/communicator.h"
#include "nought/config/run_plan.h"
#include "nought/kernels/kernels.h"

namespace nought {

/// The plan, which saves beside the training if training.async_save is "auto" and the copies of states have room: in
/// the budgets of memory, or without any in the memory of this machine, which its ranks share. What else fits is
/// decided before.
RunPlan with_fitting_save(RunPlan plan);

/// As with_fitting_save(), and alike on all ranks of a run: the first one decides. Collective.
RunPlan with_common_fitting_save(RunPlan plan, Communicator& ranks, const Context& context);

}  // namespace nought
