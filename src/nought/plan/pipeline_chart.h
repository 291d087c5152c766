// Draws the timeline of a pipeline as SVG: a row for each rank, a box for each pass with the number of its micro-batch,
// a thin bar under it while a message is sent. Further chunks of a rank are paler.
#pragma once

#include <string>

#include "nought/train/pipeline_timeline.h"

namespace nought {

/// A complete SVG document. title: without characters that XML reserves. Error if no pass takes time.
std::string to_svg(const PipelineTimeline& timeline, const std::string& title);

}  // namespace nought
