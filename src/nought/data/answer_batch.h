// Batches of whole answers with their prompts, for objectives over sequences (nn/sequence_objective.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>

#include "nought/nn/batch.h"

namespace nought {

/// The tokens of a prompt and of an answer to it, which begins at `begin`.
struct JudgedAnswer {
  std::span<const int32_t> ids;
  int64_t begin = 0;
  int64_t number = 0;                         // see BatchSequence
  double reference = 0;                       // the same
  AnswerLabel label = AnswerLabel::unjudged;  // the same

  /// The tokens that a log-probability is of: the first of a text has none.
  int64_t targets() const { return static_cast<int64_t>(ids.size()) - std::max<int64_t>(begin, 1); }
};

struct AnswerBatchOptions {
  std::optional<double> ld_alpha = {};  // what tokens beyond the shorter answer of a pair count; not given: 1
  double likelihood = 0;                // the weight of the cross-entropy of each token of a chosen answer
  bool likelihood_of_prompts = false;   // the tokens of its prompt have it too
  int64_t length = 0;                   // rows with fewer tokens are filled up; 0: none is
};
/// How many tokens have that weight.
int64_t likelihood_tokens(const JudgedAnswer& chosen, bool of_prompts);

/// Answers in one row of documents: [1, tokens]. Two in a row are the chosen and the rejected one of a pair, where
/// ld_alpha or likelihood are given. Without any a placeholder. What fills a row up are documents of their own, whose
/// targets are ignored.
Batch batch_of_answers(Memory& memory, std::span<const JudgedAnswer> answers, const AnswerBatchOptions& options);

}  // namespace nought
