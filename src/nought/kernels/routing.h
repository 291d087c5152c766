// How one token chooses its experts, and the gradient of its weights. All backends on the CPU share this scalar code,
// because a choice must not depend on the backend.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "nought/kernels/ops.h"

namespace nought {

/// Works on one token at a time; keeps its scratch between them. Real is the dtype of the logits.
template <class Real>
class TokenRouter {
 public:
  /// choice_bias: [experts] or empty.
  TokenRouter(const RouterRule& rule, int64_t num_experts, std::vector<Real> choice_bias)
      : rule_(rule),
        bias_(std::move(choice_bias)),
        probabilities_(static_cast<size_t>(num_experts)),
        scores_(probabilities_.size()),
        choice_(probabilities_.size()) {}

  /// softmax(logits), for as long as no other member is called.
  const std::vector<Real>& softmax(const Real* logits) {
    const size_t count = probabilities_.size();
    const Real largest = *std::max_element(logits, logits + count);
    Real total = 0;
    for (size_t e = 0; e < count; ++e) total += probabilities_[e] = std::exp(logits[e] - largest);
    for (Real& p : probabilities_) p /= total;
    return probabilities_;
  }

  void choose(const Real* logits, int32_t* experts, Real* weights) {
    score(logits);
    choice_ = scores_;
    for (size_t e = 0; e < bias_.size(); ++e) choice_[e] += bias_[e];
    if (rule_.num_groups > 1) keep_best_groups();
    for (int64_t k = 0; k < rule_.top_k; ++k) {
      // The first of equal scores; a NaN is never larger, so without any number left the first expert is taken.
      const auto best = std::max_element(choice_.begin(), choice_.end());
      experts[k] = static_cast<int32_t>(best - choice_.begin());
      *best = -std::numeric_limits<Real>::infinity();
    }
    weigh(experts, weights);
  }

  /// d_logits = the gradient by the logits, given that by the weights of the chosen experts.
  void backward(const Real* logits, const int32_t* experts, const Real* d_weights, Real* d_logits) {
    const auto k = static_cast<size_t>(rule_.top_k);
    score(logits);
    weights_.resize(k);
    weigh(experts, weights_.data());
    // By the chosen scores, through scaling and normalisation.
    d_chosen_.resize(k);
    const Real scaling = static_cast<Real>(rule_.scaling);
    const bool sums_to_one = rule_.normalise || rule_.scores == RouterScores::chosen_softmax;
    Real shared = 0;
    for (size_t i = 0; i < k; ++i) shared += d_weights[i] * weights_[i];
    for (size_t i = 0; i < k; ++i)
      d_chosen_[i] = sums_to_one ? d_weights[i] * scaling - shared : d_weights[i] * scaling;
    std::fill(d_logits, d_logits + scores_.size(), Real{0});
    if (rule_.scores == RouterScores::chosen_softmax) {
      for (size_t i = 0; i < k; ++i) d_logits[experts[i]] = weights_[i] / scaling * d_chosen_[i];
      return;
    }
    const Real total = rule_.normalise ? chosen_total_ : Real{1};
    if (rule_.scores == RouterScores::sigmoid) {
      for (size_t i = 0; i < k; ++i) {
        const Real s = scores_[static_cast<size_t>(experts[i])];
        d_logits[experts[i]] = d_chosen_[i] / total * s * (1 - s);
      }
      return;
    }
    Real mean = 0;
    for (size_t i = 0; i < k; ++i) {
      d_logits[experts[i]] = d_chosen_[i] / total;
      mean += d_logits[experts[i]] * scores_[static_cast<size_t>(experts[i])];
    }
    for (size_t e = 0; e < scores_.size(); ++e) d_logits[e] = scores_[e] * (d_logits[e] - mean);
  }

  /// d_logits += the gradient of softmax(logits), whose own gradient is d_probabilities.
  void add_softmax_backward(const Real* logits, const Real* d_probabilities, Real* d_logits) {
    softmax(logits);
    Real mean = 0;
    for (size_t e = 0; e < probabilities_.size(); ++e) mean += probabilities_[e] * d_probabilities[e];
    for (size_t e = 0; e < probabilities_.size(); ++e) d_logits[e] += probabilities_[e] * (d_probabilities[e] - mean);
  }

 private:
  void score(const Real* logits) {
    if (rule_.scores == RouterScores::softmax) {
      scores_ = softmax(logits);
    } else if (rule_.scores == RouterScores::sigmoid) {
      for (size_t e = 0; e < scores_.size(); ++e) scores_[e] = 1 / (1 + std::exp(-logits[e]));
    } else {
      std::copy(logits, logits + scores_.size(), scores_.begin());
    }
  }

  /// The weights of the chosen experts from their scores; chosen_total_ is what they were divided by.
  void weigh(const int32_t* experts, Real* weights) {
    const auto k = static_cast<size_t>(rule_.top_k);
    for (size_t i = 0; i < k; ++i) weights[i] = scores_[static_cast<size_t>(experts[i])];
    if (rule_.scores == RouterScores::chosen_softmax) {
      const Real largest = *std::max_element(weights, weights + k);
      for (size_t i = 0; i < k; ++i) weights[i] = std::exp(weights[i] - largest);
    }
    chosen_total_ = 1;
    if (rule_.normalise || rule_.scores == RouterScores::chosen_softmax) {
      chosen_total_ = Real(1e-20);  // as DeepSeek-V3 keeps a sum of sigmoids from 0
      for (size_t i = 0; i < k; ++i) chosen_total_ += weights[i];
    }
    for (size_t i = 0; i < k; ++i) weights[i] *= static_cast<Real>(rule_.scaling) / chosen_total_;
  }

  void keep_best_groups() {
    const auto groups = static_cast<size_t>(rule_.num_groups), size = choice_.size() / groups;
    group_scores_.resize(groups);
    for (size_t g = 0; g < groups; ++g) {
      Real best = -std::numeric_limits<Real>::infinity(), second = best;
      for (size_t e = g * size; e < (g + 1) * size; ++e) {
        second = std::max(second, std::min(best, choice_[e]));
        best = std::max(best, choice_[e]);
      }
      group_scores_[g] = rule_.group_score == GroupScore::best ? best : best + second;
    }
    kept_.assign(groups, false);
    for (int64_t i = 0; i < rule_.kept_groups; ++i) {
      size_t best = groups;
      for (size_t g = 0; g < groups; ++g)
        if (!kept_[g] && (best == groups || group_scores_[g] > group_scores_[best])) best = g;
      kept_[best] = true;
    }
    for (size_t e = 0; e < choice_.size(); ++e)
      if (!kept_[e / size]) choice_[e] = 0;
  }

  RouterRule rule_;
  std::vector<Real> bias_, probabilities_, scores_, choice_, weights_, d_chosen_, group_scores_;
  std::vector<bool> kept_;
  Real chosen_total_ = 1;
};

/// What the routing of tokens [begin, end) adds to probability_sums.
template <class Real>
void route_tokens(const Route& op, int64_t begin, int64_t end, std::vector<double>& probability_sums) {
  const int64_t count = op.logits.dim(-1), k = op.rule.top_k;
  TokenRouter<Real> router(op.rule, count, op.choice_bias ? op.choice_bias.to_vector<Real>() : std::vector<Real>{});
  for (int64_t t = begin; t < end; ++t) {
    const Real* logits = op.logits.data<Real>() + t * count;
    router.choose(logits, op.experts.data<int32_t>() + t * k, op.weights.data<Real>() + t * k);
    const std::vector<Real>& probabilities = router.softmax(logits);
    for (size_t e = 0; e < probabilities.size(); ++e) probability_sums[e] += static_cast<double>(probabilities[e]);
  }
}

template <class Real>
void route_tokens_backward(const RouteBackward& op, int64_t begin, int64_t end) {
  const int64_t count = op.logits.dim(-1), k = op.rule.top_k;
  TokenRouter<Real> router(op.rule, count, {});
  for (int64_t t = begin; t < end; ++t) {
    const Real* logits = op.logits.data<Real>() + t * count;
    Real* d_logits = op.d_logits.data<Real>() + t * count;
    router.backward(logits, op.experts.data<int32_t>() + t * k, op.d_weights.data<Real>() + t * k, d_logits);
    if (op.d_probabilities) router.add_softmax_backward(logits, op.d_probabilities.data<Real>(), d_logits);
  }
}

}  // namespace nought
