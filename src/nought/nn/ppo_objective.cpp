#include "nought/nn/ppo_objective.h"

#include <cmath>

#include "nought/base/error.h"

namespace nought {

PpoNumbers PpoNumbers::of(std::span<const double> list) {
  require(list.size() == PpoNumbers().list().size(), "{} numbers of a step", list.size());
  return {.tokens = list[0],
          .loss = list[1],
          .squares = list[2],
          .clipped = list[3],
          .entropy = list[4],
          .ratios = list[5],
          .ratio_squares = list[6],
          .values = list[7],
          .value_loss = list[8],
          .values_clipped = list[9]};
}

double PpoObjective::weight(const Batch& batch) const {
  double tokens = 0;
  for (const BatchSequence& each : batch.sequences.all) tokens += each.targets;
  return tokens * batch.sequences.share;
}

WeighedObjective::Weighed PpoObjective::weigh_with_entropies(const Context& /*context*/, const Batch& batch,
                                                             std::span<const double> losses,
                                                             std::span<const double> entropies,
                                                             Communicator* /*parts*/) const {
  const BatchSequences& sequences = batch.sequences;
  Weighed weighed{.loss = 0, .weights = std::vector<float>(losses.size())};
  const int32_t* of = sequences.of_target.defined() ? sequences.of_target.data<int32_t>() : nullptr;
  const float* place = sequences.written.defined() ? sequences.written.data<float>() : nullptr;
  for (size_t i = 0; of != nullptr && place != nullptr && i < losses.size(); ++i) {
    if (of[i] < 0) continue;
    const auto number = static_cast<size_t>(sequences.all.at(static_cast<size_t>(of[i])).number);
    const PpoTargets::OfAnswer& answer = targets_->answers.at(number);
    const auto token = static_cast<size_t>(static_cast<int64_t>(place[i]) - answer.begin);
    const double log_ratio = -losses[i] - double{answer.written.at(token)};
    const PpoTerm term = ppo_policy_term(options_, log_ratio, answer.advantages.at(token));
    weighed.loss += term.loss;
    weighed.weights[i] = static_cast<float>(-term.slope);
    if (!numbers_) continue;
    const double ratio = std::exp(log_ratio);
    ++numbers_->tokens, numbers_->loss += term.loss, numbers_->squares += log_ratio * log_ratio;
    numbers_->clipped += term.is_clipped ? 1 : 0, numbers_->entropy += entropies.empty() ? 0 : entropies[i];
    numbers_->ratios += ratio, numbers_->ratio_squares += ratio * ratio;
  }
  return weighed;
}

SequenceObjective::LossOf loss_of_values(const PpoOptions& options, std::shared_ptr<const PpoTargets> targets,
                                         std::shared_ptr<PpoNumbers> numbers, double share) {
  return [options, targets = std::move(targets), numbers = std::move(numbers), share](
             std::span<const BatchSequence> sequences, std::span<const double> values) {
    SequenceObjective::Loss loss;
    for (size_t i = 0; i < sequences.size(); ++i) {
      const auto place = static_cast<size_t>(sequences[i].number);
      const PpoTerm term =
          ppo_value_term(options, values[i], targets->old_values.at(place), targets->returns.at(place));
      loss.loss += options.value_coef * term.loss, loss.slopes.push_back(options.value_coef * term.slope);
      if (!numbers) continue;
      numbers->values += share, numbers->value_loss += share * term.loss;
      numbers->values_clipped += term.is_clipped ? share : 0;
    }
    return loss;
  };
}

}  // namespace nought
