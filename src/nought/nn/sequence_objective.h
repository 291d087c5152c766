// SequenceObjective: a loss of whole sequences, which is known when the losses of all their tokens are.
//
// Design goals: a head makes the logits twice, once for the log-probabilities, and once with the weight that each token
// has got by then; so it needs no other code than that of the cross-entropy, over chunks, over ranks that share the
// vocabulary and over ranks that share sequences. Non-goals: which sequences there are (data, train).
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "nought/nn/objective.h"
#include "nought/nn/preference_loss.h"
#include "nought/nn/score_loss.h"

namespace nought {

/// Log-probabilities of the sequences of passes that are made together, by their number; or the scores that a
/// classifier's head gives them, `labels` for each.
using SequenceSums = std::vector<double>;

/// An objective whose gradient by each log-probability is known when the losses of all tokens are.
class WeighedObjective : public Objective {
 public:
  const WeighedObjective* over_sequences() const override { return this; }
  RowLoss rows(const Batch& batch) const override { return tokens_.rows(batch); }
  RowLoss rows_of_part(const Context& context, const Batch& batch, Interval held,
                       const TensorRanks& ranks) const override {
    return tokens_.rows_of_part(context, batch, held, ranks);
  }
  /// The loss of this rank, and the weights with which cross-entropies have its gradients: [targets] f32.
  struct Weighed {
    double loss = 0;
    std::vector<float> weights = {};
  };
  /// losses: of each of this rank's targets, the cross-entropy. parts: the ranks that share the sequences, null: none.
  virtual Weighed weigh(const Context& context, const Batch& batch, std::span<const double> losses,
                        Communicator* parts) const = 0;
  /// Whether it wants the entropy of the probabilities among which each target is.
  virtual bool wants_entropies() const { return false; }
  /// weigh() with these entropies, in nats.
  virtual Weighed weigh_with_entropies(const Context& context, const Batch& batch, std::span<const double> losses,
                                       std::span<const double> /*entropies*/, Communicator* parts) const {
    return weigh(context, batch, losses, parts);
  }

 private:
  CrossEntropyObjective tokens_;
};

class SequenceObjective final : public WeighedObjective {
 public:
  /// From the sequences of a batch, which are whole, and the sums of their log-probabilities, or their scores: the loss
  /// of the batch, a sum over its examples, and its derivative by each of these numbers.
  struct Loss {
    double loss = 0;
    std::vector<double> slopes = {};
  };
  using LossOf = std::function<Loss(std::span<const BatchSequence> sequences, std::span<const double> sums)>;
  /// loss: empty for passes that only want the sums. sums: gets the log-probabilities of each batch, where they are
  /// computed; null: nobody wants them.
  SequenceObjective(LossOf loss, int64_t sequences_per_example, std::shared_ptr<SequenceSums> sums = nullptr)
      : loss_(std::move(loss)), per_example_(sequences_per_example), sums_(std::move(sums)) {}

  /// The number of its examples.
  double weight(const Batch& batch) const override;
  Weighed weigh(const Context& context, const Batch& batch, std::span<const double> losses,
                Communicator* parts) const override;

  /// sums: those of all sequences of the batch, as far as this rank has them; `parts` adds up what others have. Tells
  /// who wants them. Without a loss, its slopes are empty. Host code alone.
  Loss judge(const Context& context, const Batch& batch, std::vector<double> sums, Communicator* parts) const;

 private:
  LossOf loss_;
  int64_t per_example_;
  std::shared_ptr<SequenceSums> sums_;
};

/// The loss of pairs: a sum over those of the batch.
SequenceObjective::LossOf loss_of_pairs(const PairLossOptions& options);
/// The loss of the scores of pairs, one number for each answer: a sum over the pairs of the batch.
SequenceObjective::LossOf loss_of_rewards(double center);
/// The loss of the scores of sequences, `labels` for each: a sum over those of the batch.
SequenceObjective::LossOf loss_of_scores(ProblemType problem, int64_t labels);
/// The loss of answers with labels: a sum over those of the batch. kl: read when a loss is asked for.
SequenceObjective::LossOf loss_of_labels(const LabelLossOptions& options, std::shared_ptr<const double> kl);

}  // namespace nought
