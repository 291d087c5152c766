// Passes over whole sequences: the log-probabilities that a model gives them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "nought/engine/engine.h"
#include "nought/models/decoder.h"
#include "nought/nn/policy_objective.h"
#include "nought/nn/sequence_objective.h"

namespace nought {

/// Adds up what ranks have computed: those of other samples, of other stages, and of other parts of sequences have 0.
/// Collective.
void sum_over_ranks(ShardedModel& model, SequenceSums& sums);

/// A number for each token of sequences, such as what the model says of it.
struct TokenLogs {
  std::vector<int64_t> begins = {};  // where the first token of each sequence stands in `logs`
  SequenceSums logs = {};            // the number of each token that is a target; 0 of others

  /// The numbers of one sequence, which has so many tokens.
  std::vector<float> of(int64_t number, int64_t tokens) const {
    const auto begin = logs.begin() + begins.at(static_cast<size_t>(number));
    return {begin, begin + tokens};
  }
};

/// Calls its argument with one batch after the other: each lives for the call.
using MakeBatches = std::function<void(const std::function<void(const Batch&)>& take)>;

/// The log-probability of each token of the sequences of the batches, or the entropy of the probabilities among which
/// it is, which TokenLogsObjective reads; lengths: the
/// tokens of each sequence over all ranks, by its number. Likewise.
TokenLogs token_logs(Engine& engine, ShardedModel& model, Decoder& decoder, const MakeBatches& batches,
                     std::span<const int64_t> lengths, double temperature,
                     TokenNumber which = TokenNumber::log_probability);

/// The log-probability of each sequence of the batches, `count` over all ranks, by its number; all ranks get those of
/// all. All ranks have as many batches. The decoder is that of the engine's model; its objective is lost. Collective.
SequenceSums sequence_sums(Engine& engine, ShardedModel& model, Decoder& decoder, std::span<const Batch> batches,
                           int64_t count);
/// Likewise of batches that live one at a time.
SequenceSums sequence_sums(Engine& engine, ShardedModel& model, Decoder& decoder, const MakeBatches& batches,
                           int64_t count);

}  // namespace nought
