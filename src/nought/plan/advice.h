// Advice: changes that make a run fit its memory, the cheapest first.
#pragma once

#include <string>
#include <vector>

#include "nought/plan/predict.h"

namespace nought {

struct Advice {
  std::string change;     // "zero_optimization.stage 2 and training.recompute full"
  Prediction prediction;  // the prediction after the change
};

/// At most three changes that bring the peak to `device_memory` bytes and keep the number of sequences per step. A
/// change raises the ZeRO stage, recomputes more, computes MLPs in tiles of tokens, trades micro-batch for
/// accumulation, or lets validations have less rows, or several of these; if none of that is enough, Units get tiles,
/// or else optimizer states move to files besides. No change contains another, and no two have the same peak. Empty if
/// no change is enough.
std::vector<Advice> changes_that_fit(const ModelConfig& config, const Layout& layout, int64_t device_memory);

/// The message to a user who ran out of memory: the refusal, then the changes that fit, or the least that is needed.
std::string explain_refusal(const MemoryLimitError& refusal, const RunPlan& plan);
/// The second part of that message: one line per change.
std::string describe_changes(const ModelConfig& config, const Layout& layout, int64_t device_memory);

}  // namespace nought
