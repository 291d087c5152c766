// What a rank of a simulated run holds, by closed formulas: docs/memory.md derives them, and `nought plan` counts what
// they leave out.
#pragma once

#include "nought/simulate/run.h"

namespace nought {

/// Bytes of the rank that holds the most, on its device.
struct SimulatedMemory {
  double parameters = 0, gradients = 0, optimizer = 0, activations = 0, workspace = 0;

  double total() const { return parameters + gradients + optimizer + activations + workspace; }
};

/// `gradient_bytes`: of an element that is accumulated.
SimulatedMemory simulate_memory(const SimulatedRun& run, double gradient_bytes = 2);

}  // namespace nought
