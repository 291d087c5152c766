// Sampling: the next token from one row of logits, as a function of the parameters, the seed and the position.
//
// Order, as Hugging Face applies them: the repetition penalty, then temperature, top-k, top-p on what is left, min-p.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace nought {

struct SamplingParameters {
  double temperature = 1.0;  // 0: greedy
  int64_t top_k = 0;         // keep the k most probable tokens; 0: all
  double top_p = 1.0;        // keep the fewest most probable tokens whose probabilities sum to at least p
  double min_p = 0;          // keep the tokens that are at least p times as probable as the most probable one
  /// Tokens that were there already lose: their positive logits are divided by it, negative ones multiplied (arXiv
  /// 1909.05858). 1: none does.
  double repetition_penalty = 1.0;
  uint64_t seed = 0;

  /// ConfigError unless temperature >= 0, top_k >= 0, 0 < top_p <= 1, 0 <= min_p <= 1 and repetition_penalty > 0.
  void validate() const;
};

/// Lowers the logits of the tokens in `ids`, each once however often it is there.
void penalise_repetition(std::span<float> logits, std::span<const int32_t> ids, double penalty);

/// The index of the largest logit; the lowest index of equal ones. An empty or non-finite row is an Error that names
/// it.
int64_t greedy_token(std::span<const float> logits);

/// The probability of each token after all filters; sums to 1. Of equal logits the lower index is kept first.
std::vector<double> token_probabilities(std::span<const float> logits, const SamplingParameters& parameters);

/// The token drawn from token_probabilities(): the same for the same seed and position, whatever was drawn before.
int64_t sample_token(std::span<const float> logits, const SamplingParameters& parameters, uint64_t position);

}  // namespace nought
