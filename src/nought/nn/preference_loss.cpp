#include "nought/nn/preference_loss.h"

#include <algorithm>
#include <cmath>

namespace nought {

double log_sigmoid(double x) { return std::min(x, 0.0) - std::log1p(std::exp(-std::abs(x))); }

double log_odds(double log_probability) { return log_probability - std::log(-std::expm1(log_probability)); }

namespace {

double sigmoid(double x) { return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x)); }

/// A function's value and its derivative.
struct Slope {
  double value = 0, by = 0;
};

Slope minus_log_sigmoid(double x) { return {-log_sigmoid(x), -sigmoid(-x)}; }
Slope sigmoid_slope(double x) { return {sigmoid(x), sigmoid(x) * sigmoid(-x)}; }

/// What stands in the place of the log-ratio of policy and reference.
Slope score(const PairLossOptions& options, double ratio) {
  constexpr double kLargest = 80;  // of an exponent, as TRL bounds it
  switch (options.divergence) {
    case Divergence::reverse_kl:
      return {ratio, 1};
    case Divergence::forward_kl:
      return {1 - std::exp(-ratio), std::exp(-ratio)};
    case Divergence::js_divergence:
      return {std::log(2.0) + log_sigmoid(ratio), sigmoid(-ratio)};
    case Divergence::alpha_divergence: {
      const double order = options.alpha - 1;
      if (std::abs(order) < 1e-6) return {ratio, 1};
      if (order * ratio > kLargest) return {(std::exp(kLargest) - 1) / order, 0};
      return {(std::exp(order * ratio) - 1) / order, std::exp(order * ratio)};
    }
  }
  return {};
}

Slope exo(double x, double smoothing) {
  const double chosen = sigmoid(x), rejected = sigmoid(-x);
  return {chosen * (log_sigmoid(x) - std::log1p(-smoothing)) + rejected * (log_sigmoid(-x) - std::log(smoothing)),
          chosen * rejected * (x - std::log1p(-smoothing) + std::log(smoothing))};
}

Slope discovered(double x, double tau) {
  const Slope mixed = sigmoid_slope(x / tau), logistic = minus_log_sigmoid(x);
  const double exponential = std::exp(-x), by = mixed.by / tau;
  return {logistic.value * (1 - mixed.value) + exponential * mixed.value,
          logistic.by * (1 - mixed.value) - logistic.value * by - exponential * mixed.value + exponential * by};
}

/// (1 - e) of the loss, and e of that with the answers exchanged, over `divisor`.
Slope smoothed(double x, double share, double other, double divisor) {
  const Slope right = minus_log_sigmoid(x), wrong = minus_log_sigmoid(-x);
  return {(share * right.value + other * wrong.value) / divisor, (share * right.by - other * wrong.by) / divisor};
}

/// log_odds() of a mean log-probability, by which 1 / (1 - p) is its slope.
Slope odds_slope(double mean) { return {log_odds(mean), 1 / -std::expm1(mean)}; }

/// Losses of the difference of the scores: f(beta * difference), or that of their means.
PairLoss of_difference(Slope slope, double factor, Slope chosen, Slope rejected) {
  return {slope.value, slope.by * factor * chosen.by, -slope.by * factor * rejected.by};
}

PairLoss term(PairLossType type, const PairLossOptions& options, const AnswerSums& chosen, const AnswerSums& rejected) {
  const double beta = options.beta, e = options.label_smoothing;
  const Slope c = score(options, chosen.ratio()), r = score(options, rejected.ratio());
  const Slope mean_c{c.value / chosen.tokens, c.by / chosen.tokens},
      mean_r{r.value / rejected.tokens, r.by / rejected.tokens};
  const double x = beta * (c.value - r.value);
  const auto sums = [&](Slope slope) { return of_difference(slope, beta, c, r); };
  // Losses of each answer's reward have no other divergence.
  const double reward_c = beta * chosen.ratio(), reward_r = beta * rejected.ratio();
  switch (type) {
    case PairLossType::sigmoid:
      return sums(minus_log_sigmoid(x));
    case PairLossType::hinge:
      return sums({std::max(0.0, 1 - x), x < 1 ? -1.0 : 0.0});
    case PairLossType::ipo: {
      const double error = mean_c.value - mean_r.value - 1 / (2 * beta);
      return of_difference({error * error, 2 * error}, 1, mean_c, mean_r);
    }
    case PairLossType::exo_pair:
      return sums(exo(x, e));
    case PairLossType::robust:
      return sums(smoothed(x, 1 - e, -e, 1 - 2 * e));
    case PairLossType::smoothed:
      return sums(smoothed(x, 1 - e, e, 1));
    case PairLossType::discopop:
      return sums(discovered(x, options.discopop_tau));
    case PairLossType::sigmoid_norm:
      return of_difference(minus_log_sigmoid(beta * (mean_c.value - mean_r.value)), beta, mean_c, mean_r);
    case PairLossType::nca_pair: {
      const Slope up = minus_log_sigmoid(reward_c), down = minus_log_sigmoid(-reward_c),
                  other = minus_log_sigmoid(-reward_r);
      return {up.value + (down.value + other.value) / 2, beta * (up.by - down.by / 2), -beta * other.by / 2};
    }
    case PairLossType::bco_pair: {
      const Slope up = minus_log_sigmoid(reward_c), down = minus_log_sigmoid(-reward_r);
      return {up.value + down.value, beta * up.by, -beta * down.by};
    }
    case PairLossType::sppo_hard: {
      const double win = chosen.ratio() - 0.5 / beta, lose = rejected.ratio() + 0.5 / beta;
      return {win * win + lose * lose, 2 * win, 2 * lose};
    }
    case PairLossType::apo_zero: {
      const Slope up = sigmoid_slope(reward_c), down = sigmoid_slope(reward_r);
      return {1 - up.value + down.value, -beta * up.by, beta * down.by};
    }
    case PairLossType::apo_down: {
      const Slope down = sigmoid_slope(reward_c), apart = sigmoid_slope(reward_c - reward_r);
      return {down.value + 1 - apart.value, beta * (down.by - apart.by), beta * apart.by};
    }
    case PairLossType::simpo: {
      const double margin = chosen.policy / chosen.tokens - rejected.policy / rejected.tokens;
      const Slope slope = smoothed(beta * margin - options.simpo_gamma, 1 - e, e, 1);
      return {slope.value, slope.by * beta / chosen.tokens, -slope.by * beta / rejected.tokens};
    }
    case PairLossType::odds_ratio: {
      const Slope up = odds_slope(chosen.policy / chosen.tokens), down = odds_slope(rejected.policy / rejected.tokens);
      const Slope slope = minus_log_sigmoid(up.value - down.value);
      return {beta * slope.value, beta * slope.by * up.by / chosen.tokens,
              -beta * slope.by * down.by / rejected.tokens};
    }
    case PairLossType::sft:
      break;
  }
  return {};
}

}  // namespace

double mismatch_kl(std::span<const double> policy, std::span<const double> reference) {
  double sum = 0;
  for (size_t i = 0; i < policy.size(); ++i) sum += policy[i] - reference[i];
  return std::max(sum / static_cast<double>(policy.size()), 0.0);
}

LabelLoss label_loss(const LabelLossOptions& options, bool desirable, double ratio, double kl) {
  const double sign = desirable ? 1 : -1, weight = desirable ? options.desirable_weight : options.undesirable_weight;
  const Slope slope = sigmoid_slope(sign * options.beta * (ratio - (options.apo_zero ? 0 : kl)));
  return {weight * (1 - slope.value), -weight * sign * options.beta * slope.by};
}

PairLoss pair_loss(const PairLossOptions& options, const AnswerSums& chosen, const AnswerSums& rejected) {
  PairLoss sum;
  for (const auto& [type, weight] : options.terms) {
    const PairLoss each = term(type, options, chosen, rejected);
    sum.loss += weight * each.loss;
    sum.d_chosen += weight * each.d_chosen, sum.d_rejected += weight * each.d_rejected;
  }
  return sum;
}

}  // namespace nought
