// Objective: what turns logits and a batch into a loss.
//
// Design goals: a loss is a sum over targets, each times a weight of its own, so that ranks and micro-batches may hold
// any number of them and the mean is taken once; logits are seen some tokens at a time. Non-goals: losses that need the
// logits of two tokens at once. A loss of whole sequences (a preference, a policy gradient) gives its tokens weights:
// nn/sequence_objective.h.
#pragma once

#include <functional>
#include <memory>

#include "nought/autograd/functions.h"
#include "nought/nn/batch.h"
#include "nought/parallel/tensor_ranks.h"
#include "nought/parallel/vocabulary_tiles.h"

namespace nought {

class WeighedObjective;

class Objective {
 public:
  virtual ~Objective() = default;
  /// The objective, if what a target counts is known only when the losses of all others are; else null.
  virtual const WeighedObjective* over_sequences() const { return nullptr; }
  /// How the logits of some tokens of the batch, which lies on the device, become their losses. It may outlive neither
  /// the batch nor the objective. Where ranks share sequences, a batch has this rank's tokens of each row.
  virtual RowLoss rows(const Batch& batch) const = 0;
  /// As rows(), for logits that are this rank's columns [held.begin, held.end) of the vocabulary: the losses of the
  /// ranks are added. Host code reads the batch. ConfigError unless the objective can do with a part of each row.
  virtual RowLoss rows_of_part(const Context& context, const Batch& batch, Interval held,
                               const TensorRanks& ranks) const;
  /// What the head over tiles of a vocabulary reads of the batch, which host code reads. ConfigError unless the loss is
  /// cross-entropy: no logits of whole rows are made.
  virtual TiledTargets targets_of_tiles(const Context& context, const Batch& batch, const VocabularyTiles& tiles) const;
  /// What logits are divided by.
  virtual double temperature() const { return 1; }
  /// Runs the pass of a head over a batch: what the objective needs of others for it is there meanwhile.
  virtual void around(const Context& /*context*/, const std::function<void()>& pass) const { pass(); }
  /// What the batch, which host code reads, counts in the mean of a step: the step's loss and gradients are divided by
  /// the sum of these over its micro-batches and ranks.
  virtual double weight(const Batch& batch) const = 0;
};

/// The cross-entropy of the next token: the sum of -log(probability of the target) * weight over the targets that are
/// not kIgnoredTarget. A weight of 0 is as good as an ignored target.
class CrossEntropyObjective final : public Objective {
 public:
  /// ShapeError unless there is a target, and a weight if there are any, for each token.
  RowLoss rows(const Batch& batch) const override;
  RowLoss rows_of_part(const Context& context, const Batch& batch, Interval held,
                       const TensorRanks& ranks) const override;
  TiledTargets targets_of_tiles(const Context& context, const Batch& batch,
                                const VocabularyTiles& tiles) const override;
  /// The sum of the weights of those targets; without weights, their number.
  double weight(const Batch& batch) const override;
};

/// What a model trains on unless it is told otherwise.
std::shared_ptr<const Objective> default_objective();

}  // namespace nought
