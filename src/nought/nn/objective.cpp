#include "nought/nn/objective.h"

#include "nought/parallel/vocabulary.h"

namespace nought {

RowLoss Objective::rows_of_part(const Context&, const Batch&, Interval, const TensorRanks&) const {
  fail<ConfigError>("the objective reads whole rows of logits, which tensor parallelism cuts: use tp_size 1");
}

TiledTargets Objective::targets_of_tiles(const Context&, const Batch&, const VocabularyTiles&) const {
  fail<ConfigError>("the objective reads whole rows of logits, which training.memory_centric_tiling does not make");
}

TiledTargets CrossEntropyObjective::targets_of_tiles(const Context& context, const Batch& batch,
                                                     const VocabularyTiles& tiles) const {
  require<ShapeError>(batch.targets.numel() == batch.input_ids.numel(), "{} tokens but {} targets",
                      batch.input_ids.numel(), batch.targets.numel());
  return nought::targets_of_tiles(context, batch.targets.span<int32_t>(), context.on_device(batch.weights), tiles);
}

RowLoss CrossEntropyObjective::rows_of_part(const Context& context, const Batch& batch, Interval held,
                                            const TensorRanks& ranks) const {
  require<ShapeError>(batch.targets.numel() == batch.input_ids.numel(), "{} tokens but {} targets",
                      batch.input_ids.numel(), batch.targets.numel());
  return vocabulary_cross_entropy_rows(context, batch.targets.span<int32_t>(), context.on_device(batch.weights), held,
                                       ranks);
}

RowLoss CrossEntropyObjective::rows(const Batch& batch) const {
  require<ShapeError>(batch.targets.numel() == batch.input_ids.numel(), "{} tokens but {} targets",
                      batch.input_ids.numel(), batch.targets.numel());
  return cross_entropy_rows(batch.targets, batch.weights);
}

double CrossEntropyObjective::weight(const Batch& batch) const {
  const auto targets = batch.targets.span<int32_t>();
  double sum = 0;
  for (size_t i = 0; i < targets.size(); ++i)
    if (targets[i] != kIgnoredTarget) sum += batch.weights.defined() ? double{batch.weights.data<float>()[i]} : 1.0;
  return sum;
}

std::shared_ptr<const Objective> default_objective() { return std::make_shared<CrossEntropyObjective>(); }

}  // namespace nought
