// Batches of whole answers with their prompts, for objectives over sequences (nn/sequence_objective.h).
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>

#include "nought/base/math.h"
#include "nought/nn/batch.h"
#include "nought/nn/score_loss.h"

namespace nought {

/// The tokens of a prompt and of an answer to it, which begins at `begin`.
struct JudgedAnswer {
  std::span<const int32_t> ids;
  int64_t begin = 0;
  int64_t number = 0;                         // see BatchSequence
  double reference = 0;                       // the same
  AnswerLabel label = AnswerLabel::unjudged;  // the same
  std::span<const double> wanted = {};        // the same
  /// The log-probability of each token under the policy that wrote it, and under the reference model: see
  /// BatchSequences. All answers of a batch have them, or none.
  std::span<const float> written = {}, known = {};

  /// The tokens that a log-probability is of: the first of a text has none.
  int64_t targets() const {
    return std::max<int64_t>(static_cast<int64_t>(ids.size()) - std::max<int64_t>(begin, 1), 0);
  }
};

struct AnswerBatchOptions {
  std::optional<double> ld_alpha = {};  // what tokens beyond the shorter answer of a pair count; not given: 1
  double likelihood = 0;                // the weight of the cross-entropy of each token of a chosen answer
  bool likelihood_of_prompts = false;   // the tokens of its prompt have it too
  int64_t length = 0;                   // rows with fewer tokens are filled up; 0: none is
  int64_t most_positions = INT64_MAX;   // no document that fills a row up has more tokens
  /// For TokenLogsObjective: BatchSequences::written has the place of each target in its text.
  bool places = false;
  /// A classifier's head scores each text by the last of its tokens that is not pad_token_id, as transformers has it
  /// for decoders.
  bool scored = false;
  std::optional<int64_t> pad_token_id = {};
  /// Or by another one, or by all of its tokens.
  ScorePooling pooling = ScorePooling::last_token;
};
/// The places of the tokens of a text that its score is of. The last that is not pad_token_id is the first where all
/// are.
Interval scored_tokens(std::span<const int32_t> ids, const AnswerBatchOptions& options);
/// How many tokens have that weight.
int64_t likelihood_tokens(const JudgedAnswer& chosen, bool of_prompts);

/// Answers in one row of documents: [1, tokens]. Two in a row are the chosen and the rejected one of a pair, where
/// ld_alpha or likelihood are given. Without any a placeholder. What fills a row up are documents of their own, whose
/// targets are ignored.
Batch batch_of_answers(Memory& memory, std::span<const JudgedAnswer> answers, const AnswerBatchOptions& options);

/// A prompt with an answer, of which a value model says what it expects at each of these places: the tokens whose
/// hidden states its head scores. number: that of the first place, see BatchSequence; the next have the next.
struct ValuedAnswer {
  std::span<const int32_t> ids;
  Interval places;
  int64_t number = 0;
};
/// Such answers in one row of documents, of the length that the options have; each place is a sequence of its own.
Batch batch_of_places(Memory& memory, std::span<const ValuedAnswer> answers, const AnswerBatchOptions& options);

}  // namespace nought
