// draw_answers(): the answers of a step that a run's model writes itself, over all ranks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "nought/config/run_plan.h"
#include "nought/infer/rollout.h"
#include "nought/zero/sharded_model.h"

namespace nought {

/// How the run's plan has answers written, so many together.
RolloutOptions rollout_options(const AlignmentPlan& plan, const std::vector<int32_t>& stop_ids, int64_t at_once);

/// The tokens of the answer to each request, on all ranks, which have the same requests. Collective.
std::vector<std::vector<int32_t>> draw_answers(const RunPlan& plan, ShardedModel& model, Decoder& decoder,
                                               std::span<const AnswerRequest> requests, const RolloutOptions& options);

}  // namespace nought
