// How many tiles of Units (training.memory_centric_tiling) it takes for a run to fit its memory.
#pragma once

#include <optional>

#include "nought/plan/budgets.h"
#include "nought/plan/predict.h"

namespace nought {

/// The run with as few tiles as bring its peaks within the budgets, 1 or a power of 2; nothing if no number does.
/// Prediction::layout says how many.
std::optional<Prediction> fewest_tiles_that_fit(const ModelConfig& config, const Layout& layout,
                                                const MemoryBudgets& budgets);

/// The plan with that number, if training.memory_centric_tiling is "auto"; ConfigError with the least peak if none is
/// enough. Otherwise the plan is unchanged.
RunPlan with_fitting_tiles(RunPlan plan);

}  // namespace nought
