// measure_rates(): what step_time() wants to know of this machine.
#pragma once

#include "nought/comm/communicator.h"
#include "nought/plan/step_time.h"

namespace nought {

/// Measures on all ranks at once, in a fraction of a second each: products of the dtype, memory by an addition that is
/// far larger than a core's caches, collectives of a few bytes and of a MiB, and files in the folder of the plan's
/// states or parameters, if they are in files. All get the rates of the slowest rank. Takes 128 MiB of memory for the
/// moment. A folder that can not be measured is said in the note. Collective.
MachineRates measure_rates(Communicator& ranks, const RunPlan& plan);

/// How the ranks of this host share its cores.
struct SharedCores {
  int threads = 1;   // of a rank
  double share = 1;  // threads of all ranks for each core
};
/// Measures these rates, and in about a third of a second what each operation of a step of this run takes. Every rank
/// plans the same run. Collective.
OperationTimes measure_operations(Communicator& ranks, const RunPlan& plan, const ModelConfig& config,
                                  const Layout& layout, const SharedCores& cores);

}  // namespace nought
