// An SVG bar chart of predicted memory: one bar per stage, stacked by category, as high as the peak.
#pragma once

#include <string>

#include "nought/plan/table.h"

namespace nought {

/// A whole SVG document; it needs no font but the reader's sans-serif and no other file.
std::string to_svg(const PlanReport& report);

}  // namespace nought
