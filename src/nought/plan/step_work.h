// What a rank works in one step, in seconds on this machine.
#pragma once

#include "nought/measure/operation_times.h"
#include "nought/plan/predict.h"

namespace nought {

struct StepWork {
  double products = 0, other = 0, update = 0;  // seconds
  double operations = 0;                       // how many
};

/// The work of the first rank with this place on the pipeline axis, by a dry run whose operations take what `times`
/// say. They remember what they do not know yet, and measure() finds it out.
StepWork work_of_step(const ModelConfig& config, const Layout& layout, int place, OperationTimes& times);
/// Seconds of the host for an operation of such a step, besides computing it: tape, allocations, bookkeeping. By the
/// processor time of a dry run, which does nothing else.
double host_seconds(const ModelConfig& config, const Layout& layout);

/// Measures the rates of this machine (measure/rates.h), and in about a third of a second what each operation of a step
/// of this run takes. Every rank plans the same run. Collective.
OperationTimes measure_operations(Communicator& ranks, const RunPlan& plan, const ModelConfig& config,
                                  const Layout& layout, const SharedCores& cores);

}  // namespace nought
