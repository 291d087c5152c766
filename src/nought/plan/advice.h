// What to change so that a run fits its memory, from the change that costs least to the one that costs most.
#pragma once

#include <string>
#include <vector>

#include "nought/plan/predict.h"

namespace nought {

struct Advice {
  std::string change;     // "zero_optimization.stage 2 and training.recompute full"
  Prediction prediction;  // with the change made
};

/// At most three changes (stage, recompute, micro-batch against accumulation) that keep the batch of a step and bring
/// the peak to `device_memory`; none of them contains another. Empty if none is enough.
std::vector<Advice> changes_that_fit(const ModelConfig& config, const Layout& layout, int64_t device_memory);

/// What a person reads who ran out of memory: the refusal, and the changes that fit or what would be needed at least.
std::string explain_refusal(const MemoryLimitError& refusal, const RunPlan& plan);
/// The second half of it: one line per change.
std::string describe_changes(const ModelConfig& config, const Layout& layout, int64_t device_memory);

}  // namespace nought
