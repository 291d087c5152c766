// Draws predicted memory as a bar chart: one bar per ZeRO stage, stacked by category, as high as the peak.
#pragma once

#include "nought/plan/svg.h"
#include "nought/plan/table.h"

namespace nought {

Drawing draw_memory(const PlanReport& report);

}  // namespace nought
