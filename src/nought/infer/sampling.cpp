#include "nought/infer/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>

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

/// Token indices, the most probable first; of equal ones the lower index.
std::vector<int64_t> by_probability(std::span<const float> logits) {
  std::vector<int64_t> order(logits.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  return order;
}

}  // namespace

void SamplingParameters::validate() const {
  require<ConfigError>(std::isfinite(temperature) && temperature >= 0,
                       "temperature must be a finite number >= 0, got {} (0 takes the most probable token)",
                       temperature);
  require<ConfigError>(top_k >= 0, "top_k must be >= 0, got {} (0 keeps every token)", top_k);
  require<ConfigError>(top_p > 0 && top_p <= 1, "top_p must be > 0 and <= 1, got {} (1 keeps every token)", top_p);
}

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

  std::vector<int64_t> kept = by_probability(logits);
  if (parameters.top_k > 0 && parameters.top_k < static_cast<int64_t>(kept.size()))
    kept.resize(static_cast<size_t>(parameters.top_k));
  const double largest = logits[static_cast<size_t>(kept.front())];
  auto weight = [&](int64_t token) {
    return std::exp((static_cast<double>(logits[static_cast<size_t>(token)]) - largest) / parameters.temperature);
  };
  double total = 0;
  for (int64_t token : kept) total += weight(token);

  if (parameters.top_p < 1) {
    double sum = 0;
    size_t count = 0;
    while (count < kept.size() && sum < parameters.top_p * total) sum += weight(kept[count++]);
    kept.resize(count);
    total = sum;
  }
  for (int64_t token : kept) probabilities[static_cast<size_t>(token)] = weight(token) / total;
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
