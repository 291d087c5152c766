// The timeline of a pipeline: when each pass of each rank runs, computed from its schedule and from times.
//
// What it assumes: a rank runs its instructions in their order; a message leaves when it is made, and those from one
// rank to another follow each other; the pass that reads it waits for it, and nothing waits for what is sent.
#pragma once

#include <span>
#include <vector>

#include "nought/engine/pipeline_schedules.h"

namespace nought {

/// Seconds, or any other unit, of the passes of one micro-batch through a stage. A backward pass that forms its weight
/// gradients itself takes the sum of both.
struct PassTimes {
  double forward = 1, backward = 1, weight_gradients = 1;
};

struct TimedInstruction {
  Instruction instruction;
  double begin = 0, end = 0;
};

struct PipelineTimeline {
  int64_t chunks = 1;
  /// By rank: its passes, and what it sends while the passes go on, as they begin.
  std::vector<std::vector<TimedInstruction>> ranks;

  /// When the last pass of all ranks ends; the first begins at 0.
  double end() const;
  /// The time that the passes of a rank take.
  double busy(size_t rank) const;
  /// The part of the time until end() in which ranks run no pass, over all ranks: the bubble.
  double idle_share() const;
};

/// times: of each stage of the model, or one for all of them. transfer: the time of a message. ConfigError as
/// pipeline_schedule().
PipelineTimeline pipeline_timeline(const Pipeline& pipeline, int64_t micro_batches, std::span<const PassTimes> times,
                                   double transfer = 0);

}  // namespace nought
