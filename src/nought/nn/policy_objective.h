// PolicyObjective: the loss of answers that a policy has written itself, token by token (nn/policy_loss.h).
#pragma once

#include <memory>
#include <span>

#include "nought/nn/policy_loss.h"
#include "nought/nn/sequence_objective.h"

namespace nought {

/// Sums over the tokens of the batches of a step, as far as this rank has them.
struct PolicyNumbers {
  double tokens = 0, kl = 0, low_clipped = 0, high_clipped = 0;
};

class PolicyObjective final : public WeighedObjective {
 public:
  /// numbers: gets what each batch adds; null: nobody wants them.
  explicit PolicyObjective(const PolicyLossOptions& options, std::shared_ptr<PolicyNumbers> numbers = nullptr)
      : options_(options), numbers_(std::move(numbers)) {}

  /// The number of its answers, or of their tokens: see PolicyLossOptions::counts_tokens().
  double weight(const Batch& batch) const override;
  /// The batch has BatchSequences::written and, with a beta, BatchSequences::known.
  Weighed weigh(const Context& context, const Batch& batch, std::span<const double> losses,
                Communicator* parts) const override;
  double temperature() const override { return options_.temperature; }

 private:
  /// What the tokens of a sequence count.
  double weight_of(const BatchSequence& sequence) const;

  PolicyLossOptions options_;
  std::shared_ptr<PolicyNumbers> numbers_;
};

}  // namespace nought
