// The losses of proximal policy optimization (nn/ppo_loss.h) as objectives: a policy's over the tokens of answers, and
// a value model's over the places of their tokens.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "nought/nn/ppo_loss.h"
#include "nought/nn/sequence_objective.h"

namespace nought {

/// What is known of answers, by their numbers, when models learn from them. All ranks have that of all.
struct PpoTargets {
  struct OfAnswer {
    int64_t begin = 0;                    // the place of its first token in its text
    std::vector<float> written = {};      // the log-probability of each token under the policy that wrote it
    std::vector<double> advantages = {};  // what each token is worth
  };
  std::vector<OfAnswer> answers = {};
  std::vector<double> old_values = {}, returns = {};  // what each place that has a value has, by its number
};

/// Sums over the tokens of the batches of a step and over the values, as far as this rank has them.
struct PpoNumbers {
  double tokens = 0, loss = 0, squares = 0, clipped = 0, entropy = 0, ratios = 0, ratio_squares = 0;
  double values = 0, value_loss = 0, values_clipped = 0;  // value_loss: without value_coef

  std::vector<double> list() const {
    return {tokens, loss, squares, clipped, entropy, ratios, ratio_squares, values, value_loss, values_clipped};
  }
  static PpoNumbers of(std::span<const double> list);
};

/// The loss of the policy: a sum over the tokens of answers. In batches BatchSequences::written is the place of each
/// target in its text, as TokenLogsObjective has it.
class PpoObjective final : public WeighedObjective {
 public:
  /// numbers: gets what each batch adds; null: nobody wants them.
  PpoObjective(const PpoOptions& options, double temperature, std::shared_ptr<const PpoTargets> targets,
               std::shared_ptr<PpoNumbers> numbers = nullptr)
      : options_(options), temperature_(temperature), targets_(std::move(targets)), numbers_(std::move(numbers)) {}

  /// The number of tokens of answers.
  double weight(const Batch& batch) const override;
  Weighed weigh(const Context& context, const Batch& batch, std::span<const double> losses,
                Communicator* parts) const override {
    return weigh_with_entropies(context, batch, losses, {}, parts);
  }
  bool wants_entropies() const override { return numbers_ != nullptr; }
  Weighed weigh_with_entropies(const Context& context, const Batch& batch, std::span<const double> losses,
                               std::span<const double> entropies, Communicator* parts) const override;
  double temperature() const override { return temperature_; }

 private:
  PpoOptions options_;
  double temperature_;
  std::shared_ptr<const PpoTargets> targets_;
  std::shared_ptr<PpoNumbers> numbers_;
};

/// The loss of the values that a head of one label gives places, each a sequence of its own: a sum, times value_coef.
/// share: what this rank counts of the numbers of a place; see BatchSequences.
SequenceObjective::LossOf loss_of_values(const PpoOptions& options, std::shared_ptr<const PpoTargets> targets,
                                         std::shared_ptr<PpoNumbers> numbers = nullptr, double share = 1);

}  // namespace nought
