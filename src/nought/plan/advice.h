// Advice: changes that make a run fit its memory, the cheapest first.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "nought/plan/budgets.h"
#include "nought/plan/step_time.h"

namespace nought {

struct Advice {
  std::string change;     // "zero_optimization.stage 2 and training.recompute full"
  Prediction prediction;  // the prediction after the change
};

/// At most three changes that bring the peaks within the budgets and keep the number of sequences per step. A change
/// raises the ZeRO stage, recomputes more, computes MLPs in tiles of tokens, trades micro-batch for accumulation, or
/// lets validations have less rows, or several of these; if none of that is enough, Units get tiles, or else what may
/// lie in files moves there besides. No change contains another, and no two have the same peak. Those that cost less
/// speed come first. Empty if no change is enough.
std::vector<Advice> changes_that_fit(const ModelConfig& config, const Layout& layout, const MemoryBudgets& budgets);

/// The message to a user who ran out of memory: the refusal, then the changes that fit, or the least that is needed.
std::string explain_refusal(const MemoryLimitError& refusal, const RunPlan& plan);
/// The second part of that message: one line per change. With rates of this machine it says how much longer a step
/// takes (step_time()), and orders the changes by that.
std::string describe_changes(const ModelConfig& config, const Layout& layout, const MemoryBudgets& budgets,
                             const std::optional<MachineRates>& rates = {});

}  // namespace nought
