// The schedules of a sharded model's steps, as its mesh cuts it into pipeline stages.
#pragma once

#include "nought/parallel/pipeline_rules.h"
#include "nought/train/step_schedule.h"
#include "nought/zero/sharded_model.h"

namespace nought {

/// What an Engine uses unless it is told: plain_schedule(), or with pipeline stages 1F1B; where a rank holds several,
/// Interleaved1F1B or ZBVZeroBubble, as they lie.
MakeSchedule default_schedule(const ShardedModel& model);
/// The steps of this rank of a pipeline; plain_schedule() if that has one rank.
MakeSchedule schedule_at(const Mesh& mesh, const Pipeline& pipeline);
/// The losses of so many micro-batches, through all stages.
StepSchedule evaluation_schedule_of(const ShardedModel& model, int64_t micro_batches);

}  // namespace nought
