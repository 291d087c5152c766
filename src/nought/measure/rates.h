// measure_rates(): the rates of this machine that predictions of a step go by.
#pragma once

#include "nought/comm/communicator.h"
#include "nought/config/run_plan.h"
#include "nought/measure/machine_rates.h"

namespace nought {

/// Measures on all ranks at once, in a fraction of a second each: products of the dtype, memory by an addition that is
/// far larger than a core's caches, collectives of a few bytes, behind some work, and of a MiB, and files in the folder
/// of the plan's states or parameters, if they are in files. All get the rates of the slowest rank. Takes 128 MiB of
/// memory for the moment. A folder that can not be measured is said in the note. Collective.
MachineRates measure_rates(Communicator& ranks, const RunPlan& plan, const SharedCores& cores);

}  // namespace nought
