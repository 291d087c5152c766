// Draws timelines of a pipeline: a row for each rank, a box for each pass with the number of its micro-batch, a thin
// bar under it while a message is under way. Further chunks of a rank are paler.
#pragma once

#include <span>
#include <string>

#include "nought/engine/pipeline_timeline.h"
#include "nought/plan/svg.h"

namespace nought {

struct TimelinePanel {
  std::string caption;        // what it shows: "planned, times by FLOPs"
  PipelineTimeline timeline;  // in seconds
};
/// The panels one below the other, on one scale. Titles and captions have no characters that XML reserves. Error if no
/// pass takes time.
Drawing draw_timelines(std::span<const TimelinePanel> panels, const std::string& title);

}  // namespace nought
