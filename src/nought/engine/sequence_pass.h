// Passes over whole sequences: the log-probabilities that a model gives them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "nought/engine/engine.h"
#include "nought/models/decoder.h"
#include "nought/nn/sequence_objective.h"

namespace nought {

/// Adds up what ranks have computed: those of other samples, of other stages, and of other parts of sequences have 0.
/// Collective.
void sum_over_ranks(ShardedModel& model, SequenceSums& sums);

/// The log-probability of each sequence of the batches, `count` over all ranks, by its number; all ranks get those of
/// all. All ranks have as many batches. The decoder is that of the engine's model; its objective is lost. Collective.
SequenceSums sequence_sums(Engine& engine, ShardedModel& model, Decoder& decoder, std::span<const Batch> batches,
                           int64_t count);

}  // namespace nought
