// How the ranks of a run share the cores of their machine, for what is predicted of its time.
#pragma once

#include "nought/plan/step_work.h"

namespace nought {

/// How `ranks` ranks on this machine share its cores, with so many threads each.
SharedCores shared_cores(int ranks, int threads);
/// How the ranks of this job share the cores of their machine.
SharedCores shared_cores_of_job(int world_size);
/// What operations take where the ranks of the plan run as threads of this process, as many as a machine like this one
/// has: all of them, unless they are so many that they must be on several.
OperationTimes times_on_this_machine(const RunPlan& plan, const ModelConfig& config, const Layout& layout);

}  // namespace nought
