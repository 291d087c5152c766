#include "nought/infer/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <unordered_map>

#include "nought/base/error.h"
#include "nought/tensor/random.h"

namespace nought {

namespace {

/// -inf is a token that is forbidden; NaN and +inf come from a broken model.
void check_logits(std::span<const float> logits) {
  require<ShapeError>(!logits.empty(), "the logits to sample from are empty");
  bool any_finite = false;
  for (size_t i = 0; i < logits.size(); ++i) {
    const bool forbidden = std::isinf(logits[i]) && logits[i] < 0;
    require(forbidden || std::isfinite(logits[i]), "the logit of token {} is {}, expected a finite number", i,
            logits[i]);
    any_finite = any_finite || !forbidden;
  }
  require(any_finite, "all {} logits are -inf, expected at least one finite number", logits.size());
}

/// The order of token indices by probability: true if a comes after b. Of equal ones the lower index comes first.
struct LessProbable {
  std::span<const float> logits;
  bool operator()(int64_t a, int64_t b) const {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? x < y : a > b;
  }
};

/// The most probable of `tokens`, best first, as long as wanted(how many were taken, the next) holds. A heap: few of a
/// large vocabulary are taken.
template <class Wanted>
std::vector<int64_t> most_probable(std::span<const float> logits, std::vector<int64_t> tokens, const Wanted& wanted) {
  const LessProbable less{logits};
  std::vector<int64_t> taken;
  std::make_heap(tokens.begin(), tokens.end(), less);
  while (!tokens.empty() && wanted(taken.size(), tokens.front())) {
    taken.push_back(tokens.front());
    std::pop_heap(tokens.begin(), tokens.end(), less);
    tokens.pop_back();
  }
  return taken;
}

}  // namespace

void SamplingParameters::validate() const {
  require<ConfigError>(std::isfinite(temperature) && temperature >= 0,
                       "temperature must be a finite number >= 0, got {} (0 takes the most probable token)",
                       temperature);
  require<ConfigError>(top_k >= 0, "top_k must be >= 0, got {} (0 keeps every token)", top_k);
  require<ConfigError>(top_p > 0 && top_p <= 1, "top_p must be > 0 and <= 1, got {} (1 keeps every token)", top_p);
  require<ConfigError>(min_p >= 0 && min_p <= 1, "min_p must be >= 0 and <= 1, got {} (0 keeps every token)", min_p);
  require<ConfigError>(std::isfinite(repetition_penalty) && repetition_penalty > 0,
                       "repetition_penalty must be a finite number > 0, got {} (1 lowers no token)",
                       repetition_penalty);
  require<ConfigError>(std::isfinite(presence_penalty) && std::isfinite(frequency_penalty),
                       "presence_penalty and frequency_penalty must be finite numbers, got {} and {}", presence_penalty,
                       frequency_penalty);
}

void adjust_logits(std::span<float> logits, const SamplingParameters& parameters, std::span<const int32_t> ids,
                   std::span<const int32_t> generated) {
  for (const auto& [token, bias] : parameters.logit_bias) {
    require<ShapeError>(0 <= token && token < std::ssize(logits), "the bias of token {}: there are {} logits", token,
                        logits.size());
    logits[static_cast<size_t>(token)] += bias;
  }
  penalise_repetition(logits, ids, parameters.repetition_penalty);
  if (parameters.presence_penalty == 0 && parameters.frequency_penalty == 0) return;
  std::unordered_map<int32_t, int64_t> counts;
  for (const int32_t id : generated) ++counts[id];
  for (const auto& [token, count] : counts) {
    float& logit = logits[static_cast<size_t>(token)];
    logit = static_cast<float>(logit - parameters.presence_penalty -
                               parameters.frequency_penalty * static_cast<double>(count));
  }
}

void penalise_repetition(std::span<float> logits, std::span<const int32_t> ids, double penalty) {
  if (penalty == 1) return;
  std::vector<int32_t> once(ids.begin(), ids.end());
  std::sort(once.begin(), once.end());
  once.erase(std::unique(once.begin(), once.end()), once.end());
  for (const int32_t id : once) {
    float& logit = logits[static_cast<size_t>(id)];
    logit = static_cast<float>(logit > 0 ? logit / penalty : logit * penalty);
  }
}

LogProbabilities::LogProbabilities(std::span<const float> logits)
    : logits_(logits), largest_(*std::max_element(logits.begin(), logits.end())) {
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest_);
  log_sum_ = std::log(sum);
}

float LogProbabilities::of(int64_t token) const {
  return static_cast<float>(logits_[static_cast<size_t>(token)] - largest_ - log_sum_);
}

float log_probability(std::span<const float> logits, int64_t token) { return LogProbabilities(logits).of(token); }

int64_t greedy_token(std::span<const float> logits) {
  check_logits(logits);
  return std::max_element(logits.begin(), logits.end()) - logits.begin();
}

std::vector<double> token_probabilities(std::span<const float> logits, const SamplingParameters& parameters) {
  parameters.validate();
  check_logits(logits);
  std::vector<double> probabilities(logits.size(), 0.0);
  if (parameters.temperature == 0) {
    probabilities[static_cast<size_t>(greedy_token(logits))] = 1.0;
    return probabilities;
  }

  const double largest = *std::max_element(logits.begin(), logits.end());
  const auto weight = [&](int64_t token) {
    return std::exp((static_cast<double>(logits[static_cast<size_t>(token)]) - largest) / parameters.temperature);
  };
  const auto sum_of = [&](const std::vector<int64_t>& tokens) {
    double sum = 0;
    for (const int64_t token : tokens) sum += weight(token);
    return sum;
  };
  std::vector<int64_t> kept(logits.size());
  std::iota(kept.begin(), kept.end(), int64_t{0});
  if (parameters.top_k > 0 && parameters.top_k < static_cast<int64_t>(kept.size()))
    kept = most_probable(logits, std::move(kept),
                         [&](size_t taken, int64_t) { return taken < static_cast<size_t>(parameters.top_k); });
  if (parameters.top_p < 1) {
    const double enough = parameters.top_p * sum_of(kept);
    double sum = 0;
    kept = most_probable(logits, std::move(kept), [&](size_t, int64_t next) {
      const bool wanted = sum < enough;
      sum += weight(next);
      return wanted;
    });
  }
  if (parameters.min_p > 0) std::erase_if(kept, [&](int64_t token) { return weight(token) < parameters.min_p; });
  const double total = sum_of(kept);
  for (const int64_t token : kept) probabilities[static_cast<size_t>(token)] = weight(token) / total;
  return probabilities;
}

int64_t sample_token(std::span<const float> logits, const SamplingParameters& parameters, uint64_t position) {
  const std::vector<double> probabilities = token_probabilities(logits, parameters);
  const double drawn = uniform_at(parameters.seed, position);  // in (0, 1]
  double sum = 0;
  int64_t last = 0;
  for (size_t i = 0; i < probabilities.size(); ++i) {
    if (probabilities[i] == 0) continue;
    sum += probabilities[i];
    last = static_cast<int64_t>(i);
    if (drawn <= sum) return last;
  }
  return last;  // rounding left the sum a little below 1
}

}  // namespace nought
