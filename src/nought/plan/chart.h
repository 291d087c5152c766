// Draws predicted memory as an SVG bar chart: one bar per ZeRO stage, stacked by category, as high as the peak.
#pragma once

#include <string>

#include "nought/plan/table.h"

namespace nought {

/// A complete SVG document. It uses the viewer's sans-serif font and refers to no other file.
std::string to_svg(const PlanReport& report);

}  // namespace nought
