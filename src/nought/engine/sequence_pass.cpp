#include "nought/engine/sequence_pass.h"

namespace nought {

void sum_over_ranks(ShardedModel& model, SequenceSums& sums) {
  if (!sums.empty()) all_reduce_values(model.mesh().group(Group::losses), model.context(), sums);
}

SequenceSums sequence_sums(Engine& engine, ShardedModel& model, Decoder& decoder, std::span<const Batch> batches,
                           int64_t count) {
  const auto sums = std::make_shared<SequenceSums>(static_cast<size_t>(count));
  decoder.set_objective(std::make_shared<SequenceObjective>(SequenceObjective::LossOf(), 2, sums));
  for (const Batch& batch : batches) engine.evaluate(std::span(&batch, 1), 1);
  sum_over_ranks(model, *sums);
  return *sums;
}

}  // namespace nought
