// Draws predicted memory as a bar chart, stacked by category, as high as the peak: a bar per ZeRO stage, or a bar per
// rank of a pipeline.
#pragma once

#include <span>

#include "nought/plan/svg.h"
#include "nought/plan/table.h"

namespace nought {

/// places: given for a pipeline (predict_places()); there is a bar for each of them in place of the report's ZeRO
/// stages.
Drawing draw_memory(const PlanReport& report, std::span<const Prediction> places = {});

}  // namespace nought
