// The instruction lists of pipelines: pure functions of the pipeline, a rank and the number of micro-batches.
//
// The orders are those of torch.distributed.pipelining: GPipe, 1F1B, Interleaved1F1B, ZBH1 (InterleavedZeroBubble with
// one stage per rank) and ZBVZeroBubble. In every one each chunk walks the micro-batches back in their order, and forms
// their weight gradients in it, so that gradients add up to the same bits.
//
// Transfers. A rank sends as soon as the pass that made the message ends. A receive stands before the pass that reads
// it, or earlier where another message of the same rank was sent behind it and is read first: so a rank receives from
// each other rank in the order in which that sends, also where activations and gradients go the same way. Stages that
// are neighbours on one rank exchange nothing. The lists need no room for messages beyond what message_room() says, if
// a receive is begun while the pass before it runs.
#pragma once

#include "nought/engine/step_schedule.h"
#include "nought/parallel/pipeline_rules.h"

namespace nought {

/// The step of a rank of the pipeline (0 has the first stage). ConfigError for what check_chunks() and
/// check_micro_batches() refuse.
StepSchedule pipeline_schedule(const Pipeline& pipeline, int64_t rank, int64_t micro_batches);

/// The losses alone, of any number of micro-batches.
StepSchedule pipeline_evaluation_schedule(const Pipeline& pipeline, int64_t rank, int64_t micro_batches);

/// So many messages from one rank to another may have to wait until the receiver begins to receive them, before the
/// sender can go on: 0 with one stage per rank, 1 with several, and with Interleaved1F1B as many as a round has
/// micro-batches beyond one per rank.
int64_t message_room(const Pipeline& pipeline, int64_t micro_batches);

}  // namespace nought
