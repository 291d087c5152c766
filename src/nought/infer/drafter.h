// Drafters guess how sequences go on, for speculative decoding (arXiv 2211.17192).
//
// The model computes the guessed tokens in one step, and then draws at each of them as if there were no guess: it goes
// on while it draws what was guessed. So a guess never changes a token, whatever the temperature. A guess x is accepted
// with the probability p(x) that the model gives it, and where it is not, the token that was drawn follows p without x.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "nought/infer/sampling.h"

namespace nought {

/// A sequence whose next tokens are to be guessed.
struct DraftRequest {
  int64_t sequence = 0;               // its number in the cache of the engine
  std::span<const int32_t> ids = {};  // its tokens so far, one at least
  int64_t most = 0;                   // how many tokens to guess at most
  const SamplingParameters& sampling;
  uint64_t position = 0;  // with which the next token is drawn: how many were generated before it
};

class Drafter {
 public:
  virtual ~Drafter() = default;
  /// The guessed tokens of each request; none where it has no guess.
  virtual std::vector<std::vector<int32_t>> guess(std::span<const DraftRequest> requests) = 0;
};

struct Speculation {
  std::shared_ptr<Drafter> drafter = {};  // null: nothing is guessed
  int64_t tokens = 8;                     // the most that are guessed at once
};

/// What became of guesses so far.
struct SpeculationCounts {
  int64_t drafts = 0;                     // how often tokens of a sequence were guessed
  int64_t guessed = 0;                    // tokens
  int64_t accepted = 0;                   // those of them that the model drew as well
  std::vector<int64_t> accepted_at = {};  // how many of these were the first of their draft, the second and so on
};

/// Prompt lookup: guesses what followed the last tokens of the text where they stood before.
class LookupDrafter final : public Drafter {
 public:
  std::vector<std::vector<int32_t>> guess(std::span<const DraftRequest> requests) override;
};

/// `most` tokens that followed an earlier occurrence of the last tokens: the one that agrees with most of them, from
/// kShortestMatch to kLongestMatch; of several the latest. Where the text ends before, the guess repeats itself. Empty
/// without such an occurrence.
std::vector<int32_t> look_up_continuation(std::span<const int32_t> ids, int64_t most);
inline constexpr int64_t kShortestMatch = 2, kLongestMatch = 8;

}  // namespace nought
