#include "nought/engine/sequence_pass.h"

#include <numeric>

namespace nought {

void sum_over_ranks(ShardedModel& model, SequenceSums& sums) {
  if (!sums.empty()) all_reduce_values(model.mesh().group(Group::losses), model.context(), sums);
}

TokenLogs token_logs(Engine& engine, ShardedModel& model, Decoder& decoder, const MakeBatches& batches,
                     std::span<const int64_t> lengths, double temperature, TokenNumber which) {
  TokenLogs result;
  result.begins.resize(lengths.size());
  std::exclusive_scan(lengths.begin(), lengths.end(), result.begins.begin(), int64_t{0});
  const auto all = static_cast<size_t>(std::reduce(lengths.begin(), lengths.end()));
  const auto logs = std::make_shared<SequenceSums>(all);
  decoder.set_objective(std::make_shared<TokenLogsObjective>(temperature, result.begins, logs, which));
  batches([&](const Batch& batch) { engine.evaluate(std::span(&batch, 1), 1); });
  sum_over_ranks(model, *logs);
  result.logs = std::move(*logs);
  return result;
}

SequenceSums sequence_sums(Engine& engine, ShardedModel& model, Decoder& decoder, std::span<const Batch> batches,
                           int64_t count) {
  const MakeBatches each = [&](const auto& take) {
    for (const Batch& batch : batches) take(batch);
  };
  return sequence_sums(engine, model, decoder, each, count);
}

SequenceSums sequence_sums(Engine& engine, ShardedModel& model, Decoder& decoder, const MakeBatches& batches,
                           int64_t count) {
  const auto sums = std::make_shared<SequenceSums>(static_cast<size_t>(count));
  decoder.set_objective(std::make_shared<SequenceObjective>(SequenceObjective::LossOf(), 2, sums));
  batches([&](const Batch& batch) { engine.evaluate(std::span(&batch, 1), 1); });
  sum_over_ranks(model, *sums);
  return *sums;
}

}  // namespace nought
