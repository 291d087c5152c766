// Sampling: draws the next token from one row of logits, as a function of the parameters, the seed and the position.
//
// The filters are applied in Hugging Face's order: repetition penalty, temperature, top-k, top-p, min-p. Each sees what
// the one before left.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace nought {

struct SamplingParameters {
  double temperature = 1.0;  // 0: greedy
  int64_t top_k = 0;         // keep the k most probable tokens; 0: all
  double top_p = 1.0;        // keep the fewest most probable tokens whose probabilities sum to at least p
  double min_p = 0;          // keep the tokens that are at least p times as probable as the most probable one
  /// Penalty of tokens that occurred already: their positive logits are divided by it, negative ones multiplied (arXiv
  /// 1909.05858). 1: no penalty.
  double repetition_penalty = 1.0;
  /// Lower the logits of tokens that were generated already: by presence_penalty, and by frequency_penalty for each
  /// time (OpenAI's). 0: no penalty.
  double presence_penalty = 0, frequency_penalty = 0;
  std::vector<std::pair<int32_t, float>> logit_bias = {};  // tokens, and what is added to their logits
  uint64_t seed = 0;

  /// ConfigError unless temperature >= 0, top_k >= 0, 0 < top_p <= 1, 0 <= min_p <= 1, repetition_penalty > 0 and the
  /// other penalties are finite.
  void validate() const;
};

/// Adds logit_bias and applies the penalties. ids: the tokens so far, prompt and generated ones, in which repetition is
/// penalised; the other penalties are for `generated` alone. ShapeError for a biased token beyond the logits.
void adjust_logits(std::span<float> logits, const SamplingParameters& parameters, std::span<const int32_t> ids,
                   std::span<const int32_t> generated);

/// Lowers the logits of the tokens in `ids`. A token that occurs several times is lowered once.
void penalise_repetition(std::span<float> logits, std::span<const int32_t> ids, double penalty);

/// The logs of the probabilities of tokens among all by these logits, summed in fp64 in their order. Equal logits give
/// the same numbers wherever they are computed.
class LogProbabilities {
 public:
  explicit LogProbabilities(std::span<const float> logits);
  float of(int64_t token) const;

 private:
  std::span<const float> logits_;
  double largest_, log_sum_;
};
/// One of them.
float log_probability(std::span<const float> logits, int64_t token);

/// The index of the largest logit; of equal ones the lowest index. Error if the row is empty or not finite.
int64_t greedy_token(std::span<const float> logits);

/// The probability of each token after all filters. They sum to 1. Of equal logits the lower index is kept first.
std::vector<double> token_probabilities(std::span<const float> logits, const SamplingParameters& parameters);

/// A token drawn from token_probabilities(). It depends on seed and position, and not on what was drawn before.
int64_t sample_token(std::span<const float> logits, const SamplingParameters& parameters, uint64_t position);

}  // namespace nought
