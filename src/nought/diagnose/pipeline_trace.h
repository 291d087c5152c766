// timeline_of_trace(): the timeline of a pipeline as it was, from the trace of a step (diagnose/trace.h).
#pragma once

#include <filesystem>

#include "nought/engine/pipeline_timeline.h"

namespace nought {

/// The passes of the first rank of each pipeline stage, without what they waited for before, and what it sent, until
/// the receiver had it, in seconds; 0 is when the first pass began. world_size: the ranks of the run. IoError;
/// ConfigError if the trace is that of other ranks, chunks or micro-batches.
PipelineTimeline timeline_of_trace(const std::filesystem::path& file, const Pipeline& pipeline, int64_t micro_batches,
                                   int64_t world_size);

}  // namespace nought
