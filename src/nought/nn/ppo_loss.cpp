#include "nought/nn/ppo_loss.h"

#include <algorithm>
#include <cmath>

#include "nought/base/error.h"

namespace nought {

namespace {

constexpr double kLeastVariance = 1e-8;  // TRL's, so that equal numbers divide nothing by 0

/// Brings the numbers to variance 1, and to mean 0 if `shifts`. take(f) calls f with each of them.
template <class Each>
void whiten(const Each& each, bool shifts) {
  double sum = 0, squares = 0, count = 0;
  each([&](double& value) { sum += value, ++count; });
  if (count == 0) return;
  const double mean = sum / count;
  each([&](double& value) { squares += (value - mean) * (value - mean); });
  const double variance = count > 1 ? squares / (count - 1) : 0, scale = 1 / std::sqrt(variance + kLeastVariance);
  each([&](double& value) { value = (value - mean) * scale + (shifts ? 0 : mean); });
}

double kl_of(KlEstimator estimator, double written, double known) {
  const double apart = known - written;
  return estimator == KlEstimator::k1 ? -apart : std::expm1(apart) - apart;
}

PpoWorth rewards_of(const PpoOptions& options, const PpoAnswer& answer) {
  const size_t tokens = answer.written.size(), places = answer.values.size();
  require<ShapeError>(tokens > 0 && (places == tokens || places == tokens + 1), "{} tokens of an answer have {} values",
                      tokens, places);
  require<ShapeError>(answer.known.empty() || answer.known.size() == tokens, "{} tokens of an answer, {} known", tokens,
                      answer.known.size());
  PpoWorth worth{.rewards = std::vector<double>(places)};
  for (size_t t = 0; t < tokens && !answer.known.empty(); ++t) {
    const double kl = kl_of(options.kl_estimator, answer.written[t], answer.known[t]);
    worth.rewards[t] = -options.kl_coef * kl, worth.kl += kl;
  }
  worth.rewards.back() += answer.score;
  return worth;
}

/// Generalized advantage estimation, from the last place to the first.
void estimate(const PpoOptions& options, const PpoAnswer& answer, PpoWorth& worth) {
  const size_t places = answer.values.size();
  std::vector<double> advantages(places);
  worth.returns.resize(places);
  double later = 0, next = 0;  // the advantage and the value of the place behind
  for (size_t t = places; t-- > 0;) {
    const double value = answer.values[t];
    later = worth.rewards[t] + options.gamma * next - value + options.gamma * options.lam * later;
    advantages[t] = later, worth.returns[t] = later + value, next = value;
  }
  advantages.resize(answer.written.size());
  worth.advantages = std::move(advantages);
}

}  // namespace

std::vector<PpoWorth> worth_of(const PpoOptions& options, std::span<const PpoAnswer> answers) {
  std::vector<PpoWorth> all;
  for (const PpoAnswer& answer : answers) all.push_back(rewards_of(options, answer));
  const auto each_of = [&all](std::vector<double> PpoWorth::*member) {
    return [&all, member](const auto& body) {
      for (PpoWorth& worth : all)
        for (double& value : worth.*member) body(value);
    };
  };
  if (options.whitens_rewards) whiten(each_of(&PpoWorth::rewards), /*shifts=*/false);
  for (size_t i = 0; i < all.size(); ++i) estimate(options, answers[i], all[i]);
  whiten(each_of(&PpoWorth::advantages), /*shifts=*/true);
  return all;
}

PpoTerm ppo_policy_term(const PpoOptions& options, double log_ratio, double advantage) {
  const double ratio = std::exp(log_ratio), bounded = std::clamp(ratio, 1 - options.clip, 1 + options.clip);
  if (-advantage * bounded > -advantage * ratio) return {-advantage * bounded, 0, true};
  return {-advantage * ratio, -advantage * ratio, false};
}

PpoTerm ppo_value_term(const PpoOptions& options, double value, double old_value, double wanted) {
  const double bounded = std::clamp(value, old_value - options.value_clip, old_value + options.value_clip);
  const double away = value - wanted, away_bounded = bounded - wanted;
  if (away_bounded * away_bounded > away * away) return {0.5 * away_bounded * away_bounded, 0, true};
  return {0.5 * away * away, away, false};
}

}  // namespace nought
