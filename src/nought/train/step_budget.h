// choose_steps(): how many steps a run makes, so that it takes about as long as its user has time for.
//
// Design goals: the number is chosen once, before the run, from measured steps; then it is a number as any other, and
// the same number gives the same run anywhere. Non-goals: a clock that ends a run; the time of validations, samples and
// saves.
#pragma once

#include <cstdint>
#include <string>

#include "nought/measure/samples.h"

namespace nought {

struct StepBudget {
  double seconds = 0;            // that the steps may take
  int64_t fewest = 1, most = 1;  // steps; at least `fewest` are chosen, also if they take longer
  int64_t tokens_per_step = 0;   // for the reason
};

struct StepChoice {
  int64_t steps = 0;
  /// "264 of 600 steps, as so many fit into 2m30s and all would take 5m41s: a step takes 0.568 s (1.80K tokens/s),
  /// ...".
  std::string reason;
};

/// `measured`: the seconds of a few steps; their median counts.
StepChoice choose_steps(const StepBudget& budget, const Samples& measured);

}  // namespace nought
