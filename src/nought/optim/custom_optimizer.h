// CustomOptimizer: an optimizer that is written outside of Nought.
//
// Design goals: one function over arrays of floats, which serves every ZeRO stage, number of ranks, dtype, offload tier
// and checkpoint, and has the same bits in all of them. Non-goals: updates of which one element depends on others, as
// Lamb's trust ratios and Muon's matrices do (optim/options.h); code for GPUs: there the host computes the update.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nought/kernels/ops/optimizers.h"
#include "nought/optim/options.h"

namespace nought {

/// The numbers of one update of one parameter.
struct UpdateNumbers {
  double lr = 0;            // of the schedule, times the factor of the parameter's group
  double weight_decay = 0;  // 0 for norms and biases, unless the options say otherwise
  int64_t step = 1;         // 1 for the first update
};

class CustomOptimizer {
 public:
  virtual ~CustomOptimizer() = default;
  /// What it is called in traces, checkpoints and messages.
  virtual std::string name() const = 0;
  /// What it keeps for each element, 0 before the first update: some of exp_avg, momentum_buffer, exp_avg_sq and sum,
  /// each at most once. The last two hold nothing negative; 8-bit states rely on it.
  virtual std::vector<StateKind> states() const = 0;
  /// Updates elements.parameter and elements.states (in the order of states()) in place. It is called for stretches of
  /// any length, by several threads at once, so the result for an element depends on its own values and on `numbers`
  /// alone. What it throws ends the run.
  virtual void update(const UpdateNumbers& numbers, const UpdatedElements& elements) const = 0;
};

}  // namespace nought
