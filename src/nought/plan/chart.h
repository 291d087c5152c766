// Draws predicted memory as a bar chart, stacked by category, as high as the peak: a bar per ZeRO stage, or a bar per
// rank of a pipeline.
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "nought/plan/svg.h"
#include "nought/plan/table.h"

namespace nought {

/// Colours by Category: told apart by people who see no red or no green too (Okabe and Ito's palette).
inline constexpr std::array<std::string_view, kNumCategories> kCategoryColours{
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#999999", "#d55e00", "#f0e442"};

/// places: given for a pipeline (predict_places()); there is a bar for each of them in place of the report's ZeRO
/// stages.
Drawing draw_memory(const PlanReport& report, std::span<const Prediction> places = {});

}  // namespace nought
