// Proximal policy optimization (arXiv 1707.06347) in plain numbers: what each token of an answer is worth, by a score
// for all of it and by what a value model expects before each token, and the losses of both models.
//
// Design goals: a loss and its derivatives are tested alone; names, defaults and formulas are those of TRL 0.24's
// PPOTrainer, means and variances are over all answers that are written at once. Non-goals: models, and how their
// losses become gradients (nn/ppo_objective.h).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "nought/base/visit.h"

namespace nought {

/// How the divergence from the reference is estimated by one token: http://joschu.net/blog/kl-approx.html.
enum class KlEstimator : uint8_t { k1, k3 };

template <>
struct EnumNames<KlEstimator> {
  static constexpr std::array<std::pair<KlEstimator, std::string_view>, 2> value{
      {{KlEstimator::k1, "k1"}, {KlEstimator::k3, "k3"}}};
};

struct PpoOptions {
  double kl_coef = 0.05;  // what the divergence from the reference takes off the reward of each token
  KlEstimator kl_estimator = KlEstimator::k1;
  bool whitens_rewards = false;  // rewards get variance 1
  double gamma = 1, lam = 0.95;  // gamma and lambda of generalized advantage estimation (arXiv 1506.02438)
  double clip = 0.2;             // how far ratios go from 1 before they are clipped
  double value_clip = 0.2;       // how far values go from the old ones
  double value_coef = 0.1;       // what the loss of the value model counts
  std::optional<double> missing_eos_penalty = {};  // what answers without an end lose of their score
};

/// An answer that a policy wrote. written, known: the log-probability of each token under this policy, and under the
/// reference; known is empty without one. values: what the value model expected before each token, and, of an answer
/// that ended before it had to, behind its last one, too.
struct PpoAnswer {
  std::span<const float> written, known, values;
  double score = 0;
};
/// What was made of it. rewards, returns: for each value; advantages: for each token. kl: summed over its tokens.
struct PpoWorth {
  std::vector<double> rewards = {}, returns = {}, advantages = {};
  double kl = 0;
};
/// The score is the reward of the place behind the last token, if it has a value, else of the last token. Advantages
/// are whitened over all answers.
std::vector<PpoWorth> worth_of(const PpoOptions& options, std::span<const PpoAnswer> answers);

/// The loss of a token or of a value, and its derivative; is_clipped: it is a bound's, so that its gradient is gone.
struct PpoTerm {
  double loss = 0, slope = 0;
  bool is_clipped = false;
};
/// log_ratio: of the policy to the one that wrote. The derivative is by the log-probability.
PpoTerm ppo_policy_term(const PpoOptions& options, double log_ratio, double advantage);
/// Half the square of what it is away from the return. Without value_coef.
PpoTerm ppo_value_term(const PpoOptions& options, double value, double old_value, double wanted);

}  // namespace nought
