#include "nought/nn/policy_loss.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "nought/base/error.h"

namespace nought {

namespace {
constexpr double kNobody = std::numeric_limits<double>::quiet_NaN();  // has scored an answer
constexpr double kLeast = 1e-4;  // TRL's, so that equal rewards divide nothing by 0
}  // namespace

PolicyToken policy_token(const PolicyLossOptions& options, double log_ratio, double advantage, double policy,
                         double reference) {
  const double ratio = std::exp(log_ratio);
  PolicyToken token;
  if (options.type == PolicyLossType::cispo) {
    token.d_self = -std::min(ratio, options.epsilon_high) * advantage;
    token.loss = token.d_self * policy;
  } else {
    const double first = options.delta ? std::min(ratio, *options.delta) : ratio;
    const double clipped = std::clamp(ratio, 1 - options.epsilon, 1 + options.epsilon_high);
    const bool takes_first = first * advantage <= clipped * advantage;
    const double taken = takes_first ? first : clipped;
    token.loss = -taken * advantage;
    token.d_log_ratio = taken == ratio ? -ratio * advantage : 0;  // a bound has no gradient
  }
  if (options.beta == 0) return token;
  const double apart = reference - policy, factor = options.corrects_kl ? ratio : 1;
  token.kl = std::expm1(apart) - apart;
  token.loss += options.beta * token.kl * factor;
  token.d_self -= options.beta * factor * std::expm1(apart);
  if (options.corrects_kl) token.d_log_ratio += options.beta * token.kl * ratio;
  return token;
}

Clipping clipping_of(const PolicyLossOptions& options, double ratio, double advantage) {
  if (options.type == PolicyLossType::cispo)
    return ratio > options.epsilon_high && advantage > 0 ? Clipping::high : Clipping::none;
  const double capped = options.delta ? std::min(ratio, *options.delta) : ratio;
  if (capped < 1 - options.epsilon && advantage < 0) return Clipping::low;
  return capped > 1 + options.epsilon_high && advantage > 0 ? Clipping::high : Clipping::none;
}

Moments moments_of(std::span<const double> values) {
  double sum = 0, squares = 0, count = 0;
  for (const double value : values)
    if (!std::isnan(value)) sum += value, ++count;
  if (count == 0) return {kNobody, kNobody};
  const double mean = sum / count;
  for (const double value : values)
    if (!std::isnan(value)) squares += (value - mean) * (value - mean);
  return {mean, count > 1 ? std::sqrt(squares / (count - 1)) : 0};
}

double quantile_of(std::vector<double> values, double share) {
  require(!values.empty(), "a quantile of nothing");
  std::sort(values.begin(), values.end());
  const double place = share * static_cast<double>(values.size() - 1), whole = std::floor(place);
  const auto below = static_cast<size_t>(whole), above = std::min(below + 1, values.size() - 1);
  return values[below] + (place - whole) * (values[above] - values[below]);
}

std::vector<double> total_rewards(std::span<const double> rewards, std::span<const double> weights) {
  const size_t functions = weights.size();
  require(functions > 0 && rewards.size() % functions == 0, "{} rewards of {} functions", rewards.size(), functions);
  std::vector<double> totals(rewards.size() / functions, kNobody);
  for (size_t i = 0; i < totals.size(); ++i)
    for (size_t f = 0; f < functions; ++f)
      if (const double reward = rewards[i * functions + f]; !std::isnan(reward))
        totals[i] = (std::isnan(totals[i]) ? 0 : totals[i]) + weights[f] * reward;
  return totals;
}

std::vector<double> advantages_of(std::span<const double> rewards, std::span<const double> weights, int64_t generations,
                                  RewardScale scale) {
  const std::vector<double> totals = total_rewards(rewards, weights);
  const size_t answers = totals.size();
  const auto group = static_cast<size_t>(generations);
  require(answers % group == 0, "{} answers in groups of {}", answers, generations);
  std::vector<double> advantages(answers);
  const double of_batch = moments_of(totals).deviation;
  for (size_t begin = 0; begin < answers; begin += group) {
    const auto [mean, deviation] = moments_of(std::span(totals).subspan(begin, group));
    const double by = scale == RewardScale::none    ? 1
                      : scale == RewardScale::group ? deviation + kLeast
                                                    : of_batch + kLeast;
    for (size_t i = begin; i < begin + group; ++i) advantages[i] = std::isnan(totals[i]) ? 0 : (totals[i] - mean) / by;
  }
  return advantages;
}

std::vector<double> penalised_rewards(const LeaveOneOutOptions& options, std::span<const double> totals,
                                      std::span<const double> divergences) {
  std::vector<double> rewards(totals.begin(), totals.end());
  for (size_t i = 0; i < rewards.size(); ++i) {
    if (options.clip_range && !std::isnan(rewards[i]))
      rewards[i] = std::clamp(rewards[i], options.clip_range->front(), options.clip_range->back());
    if (!divergences.empty()) rewards[i] -= options.beta * divergences[i];
  }
  return rewards;
}

std::vector<double> advantages_over_others(const LeaveOneOutOptions& options, std::span<const double> rewards,
                                           int64_t generations) {
  const auto group = static_cast<size_t>(generations);
  require(rewards.size() % group == 0, "{} answers in groups of {}", rewards.size(), generations);
  std::vector<double> advantages(rewards.size(), kNobody);
  for (size_t begin = 0; begin < rewards.size(); begin += group) {
    double sum = 0, scored = 0;
    for (const double reward : rewards.subspan(begin, group))
      if (!std::isnan(reward)) sum += reward, ++scored;
    for (size_t i = begin; scored > 1 && i < begin + group; ++i)
      advantages[i] = rewards[i] - (sum - rewards[i]) / (scored - 1);
  }
  const auto [mean, deviation] = moments_of(advantages);
  for (double& each : advantages) {
    if (options.normalizes) each = (each - mean) / (deviation + kLeast);
    if (std::isnan(each)) each = 0;
  }
  return advantages;
}

}  // namespace nought
