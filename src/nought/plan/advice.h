// Advice: changes that make a run fit its memory, the cheapest first.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "nought/plan/advice_flags.h"
#include "nought/plan/budgets.h"
#include "nought/plan/step_time.h"

namespace nought {

struct Advice {
  std::string change;     // "zero_optimization.stage 2 and training.recompute full"
  Prediction prediction;  // the prediction after the change
};

/// At most three changes that bring the peaks within the budgets and keep the number of sequences per step. A change
/// raises the ZeRO stage, recomputes more, computes MLPs in tiles of tokens, trades micro-batch for accumulation, or
/// lets validations have less rows, or several of these; or it keeps the frozen model of an adapter in 4 bits; if none
/// of these is enough, Units get tiles, or else what may lie in files moves there besides. No change contains another,
/// and no two have the same peak. Those that cost less speed come first. Empty if no change is enough.
std::vector<Advice> changes_that_fit(const ModelConfig& config, const Layout& layout, const MemoryBudgets& budgets);

/// The layout with the frozen model of an adapter in codes of 4 bits (QLoRA); nothing for a run without an adapter, or
/// with one that does not go with them.
std::optional<Layout> with_four_bits(const ModelConfig& config, const Layout& layout);

/// How advice becomes flags: with the run itself.
struct PastedRun {
  RunWith run_with;                // see settings_of()
  std::string folder = "offload";  // for what moves to files, where the run names none
};

/// The message to a user whose run ended at a budget: the refusal, then the changes that fit, or the least that is
/// needed.
std::string explain_refusal(const MemoryLimitError& refusal, const RunPlan& plan, const PastedRun& pasted);
/// The second part of that message: for each change what it takes, and below it the flags to paste; in words where no
/// flags say it, or without a `pasted`. With rates of this machine it says how much longer a step takes (step_time()),
/// and orders the changes by that.
std::string describe_changes(const ModelConfig& config, const Layout& layout, const MemoryBudgets& budgets,
                             const std::optional<MachineRates>& rates = {}, const PastedRun& pasted = {});

/// MemoryLimitError if a rank of the run is predicted to exceed a budget; it says what would fit. `nought check` and
/// `nought train` call it.
void require_memory(const RunPlan& plan, const ModelConfig& config, const PastedRun& pasted);

}  // namespace nought
