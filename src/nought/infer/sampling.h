// Sampling: the next token from one row of logits, as a function of the parameters, the seed and the position.
//
// Order of the filters, as Hugging Face applies them: temperature, then top-k, then top-p on what is left.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace nought {

struct SamplingParameters {
  double temperature = 1.0;  // 0: greedy
  int64_t top_k = 0;         // keep the k most probable tokens; 0: all
  double top_p = 1.0;        // keep the fewest most probable tokens whose probabilities sum to at least p
  uint64_t seed = 0;

  /// ConfigError unless temperature >= 0, top_k >= 0 and 0 < top_p <= 1.
  void validate() const;
};

/// The index of the largest logit; the lowest index of equal ones. An empty or non-finite row is an Error that names
/// it.
int64_t greedy_token(std::span<const float> logits);

/// The probability of each token after all filters; sums to 1. Of equal logits the lower index is kept first.
std::vector<double> token_probabilities(std::span<const float> logits, const SamplingParameters& parameters);

/// The token drawn from token_probabilities(): the same for the same seed and position, whatever was drawn before.
int64_t sample_token(std::span<const float> logits, const SamplingParameters& parameters, uint64_t position);

}  // namespace nought
