// simulate_step(): the seconds of a training step on a cluster, by closed formulas.
//
// Design goals: no dry run, so that thousands of layouts take seconds; every part of a step has its name; frameworks
// differ by the facts of Software, and formulas serve all of them. docs/simulator.md has these, and the errors.
// Non-goals: input pipelines, checkpoints, stragglers and failures.
#pragma once

#include <vector>

#include "nought/plan/step_time.h"
#include "nought/simulate/layer_time.h"

namespace nought {

struct SimulatedStep {
  double seconds = 0;
  /// Seconds of the rank that the step waits for, but for what is hidden.
  double products = 0, attention = 0, memory = 0, head = 0, tensor = 0, context = 0, expert = 0, slowed = 0,
         pipeline = 0, data = 0, bubble = 0, update = 0, fixed = 0;
  double hidden = 0;

  /// The parts as rows of a table, largest first; those that take no time are left out.
  std::vector<StepPart> parts() const;
};

SimulatedStep simulate_step(const SimulatedRun& run, const Cluster& cluster, const FittedConstants& fitted);

}  // namespace nought
