// Whether there is room for updates that run overlapped with the backward pass (training.update_beside_backward).
#pragma once

#include <cstdint>

#include "nought/comm/communicator.h"
#include "nought/config/run_plan.h"
#include "nought/kernels/kernels.h"

namespace nought {

/// The plan, whose updates wait for the backward pass if training.update_beside_backward is "auto" and what it takes
/// does not fit: the budgets of memory or, for states twice, the folder of files. free: bytes that the folder has left;
/// -1: asks the system.
RunPlan with_fitting_update(RunPlan plan, int64_t free = -1);

/// As with_fitting_update(), and alike on all ranks of a run: all wait if one, on its host and disk, has no room.
/// Collective.
RunPlan with_common_fitting_update(RunPlan plan, Communicator& ranks, const Context& context, int64_t free = -1);

}  // namespace nought
