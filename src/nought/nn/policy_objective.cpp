#include "nought/nn/policy_objective.h"

#include <cmath>

#include "nought/comm/mesh.h"

namespace nought {

namespace {

/// This rank's tokens of a batch, and of each what is known.
struct Tokens {
  std::span<const double> losses;
  const int32_t* sequence;
  const float *written, *known;

  Tokens(const BatchSequences& of, std::span<const double> losses)
      : losses(losses),
        sequence(of.of_target.defined() ? of.of_target.data<int32_t>() : nullptr),
        written(of.written.defined() ? of.written.data<float>() : nullptr),
        known(of.known.defined() ? of.known.data<float>() : nullptr) {}
  double policy(size_t i) const { return -losses[i]; }
  double log_ratio(size_t i) const { return written == nullptr ? 0 : policy(i) - double{written[i]}; }
  double reference(size_t i) const { return known == nullptr ? policy(i) : double{known[i]}; }
  /// Calls body(token, sequence) for those of answers.
  template <class Body>
  void each(const Body& body) const {
    for (size_t i = 0; sequence != nullptr && i < losses.size(); ++i)
      if (sequence[i] >= 0) body(i, static_cast<size_t>(sequence[i]));
  }
};

void add_parts(std::vector<double>& sums, const Context& context, Communicator* parts) {
  if (parts != nullptr && !sums.empty()) all_reduce_values(*parts, context, sums);
}

}  // namespace

WeighedObjective::Weighed TokenLogsObjective::weigh(const Context&, const Batch& batch, std::span<const double> losses,
                                                    Communicator*) const {
  Tokens(batch.sequences, losses).each([&](size_t i, size_t of) {
    const int64_t begin = begins_.at(static_cast<size_t>(batch.sequences.all[of].number));
    logs_->at(static_cast<size_t>(begin + int64_t(batch.sequences.written.data<float>()[i]))) = -losses[i];
  });
  return {.loss = 0, .weights = std::vector<float>(losses.size())};
}

WeighedObjective::Weighed TokenLogsObjective::weigh_with_entropies(const Context& context, const Batch& batch,
                                                                   std::span<const double> losses,
                                                                   std::span<const double> entropies,
                                                                   Communicator* parts) const {
  if (which_ == TokenNumber::log_probability) return weigh(context, batch, losses, parts);
  std::vector<double> negative(entropies.size());  // as losses are of log-probabilities
  for (size_t i = 0; i < negative.size(); ++i) negative[i] = -entropies[i];
  return weigh(context, batch, negative, parts);
}

double PolicyObjective::weight(const Batch& batch) const {
  double count = 0;
  for (const BatchSequence& each : batch.sequences.all)
    count += !options_.counts_tokens() ? 1 : counts(each) ? each.targets : 0;
  return count * batch.sequences.share;
}

double PolicyObjective::weight_of(const BatchSequence& sequence) const {
  if (options_.type == PolicyLossType::grpo) return 1 / sequence.targets;
  return options_.type == PolicyLossType::dr_grpo ? 1 / static_cast<double>(options_.max_completion_length) : 1;
}

WeighedObjective::Weighed PolicyObjective::weigh_with_entropies(const Context& context, const Batch& batch,
                                                                std::span<const double> losses,
                                                                std::span<const double> entropies,
                                                                Communicator* parts) const {
  const std::vector<BatchSequence>& all = batch.sequences.all;
  const Tokens tokens(batch.sequences, losses);
  const bool whole = options_.level == ImportanceLevel::sequence;
  std::vector<double> ratios(all.size()), slopes(all.size());  // a number for each answer; ratios: logarithms
  if (whole) {
    tokens.each([&](size_t i, size_t of) { ratios[of] += share_of(all[of]) * tokens.log_ratio(i); });
    add_parts(ratios, context, parts);
  }
  Weighed weighed{.loss = 0, .weights = std::vector<float>(losses.size())};
  tokens.each([&](size_t i, size_t of) {
    if (!counts(all[of])) return;
    const double log_ratio = whole ? ratios[of] : tokens.log_ratio(i), advantage = all[of].wanted.at(0);
    const bool is_sure = least_entropy_ && entropies[i] < *least_entropy_;
    const PolicyToken token =
        policy_token(options_, log_ratio, is_sure ? 0 : advantage, tokens.policy(i), tokens.reference(i));
    const double weight = weight_of(all[of]);
    weighed.loss += weight * token.loss;
    if (whole) slopes[of] += weight * share_of(all[of]) * token.d_log_ratio;
    weighed.weights[i] = static_cast<float>(-weight * (token.d_self + (whole ? 0 : token.d_log_ratio)));
    if (!numbers_) return;
    const double ratio = std::exp(log_ratio), one = whole ? 1 / all[of].targets : 1;
    ++numbers_->tokens, numbers_->kl += token.kl * (options_.corrects_kl ? ratio : 1);
    numbers_->ratios += one, numbers_->entropy += entropies.empty() ? 0 : entropies[i];
    const Clipping clipped = clipping_of(options_, ratio, advantage);
    const double low = clipped == Clipping::low ? one : 0, high = clipped == Clipping::high ? one : 0;
    numbers_->low_clipped += low, numbers_->high_clipped += high;
    if (numbers_->answers.empty()) return;
    PolicyNumbers::OfAnswer& own = numbers_->answers.at(static_cast<size_t>(all[of].number - numbers_->first));
    own.ratios += one, own.low_clipped += low, own.high_clipped += high;
  });
  if (!whole) return weighed;
  add_parts(slopes, context, parts);
  tokens.each([&](size_t i, size_t of) { weighed.weights[i] -= static_cast<float>(slopes[of]); });
  return weighed;
}

}  // namespace nought
