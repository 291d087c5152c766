// How many Units stay gathered between the passes of a step at stage 3: as many as fit the run's memory.
#pragma once

#include <string>

#include "nought/comm/communicator.h"
#include "nought/config/run_plan.h"
#include "nought/kernels/kernels.h"
#include "nought/plan/predict.h"

namespace nought {

/// The plan with the largest ShardingOptions::live that its memory budgets hold and that it does not forbid, if it has
/// budgets; and with the number of Units that stay, and the reason, in its row. Otherwise the plan is unchanged.
RunPlan with_live_parameters(RunPlan plan);
/// The plan with what the first rank has found, as the ranks of hosts that differ may predict other peaks. Collective.
RunPlan with_common_live_parameters(RunPlan plan, Communicator& ranks, const Context& context);

/// "3 of 14 Units, 21.3M elements, stay gathered between the passes of a step"; "" where passes gather nothing.
std::string describe_live(const Prediction& prediction);

}  // namespace nought
