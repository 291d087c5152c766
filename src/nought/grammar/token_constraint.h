// TokenConstraint: keeps what is generated within a grammar, by masks over the vocabulary.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "nought/grammar/grammar_states.h"
#include "nought/grammar/token_bytes.h"

namespace nought {

/// A grammar with the masks of its states. It may be shared by requests of one thread.
class TokenMasks {
 public:
  TokenMasks(Grammar grammar, std::shared_ptr<const TokenBytes> tokens)
      : states_(std::move(grammar)), tokens_(std::move(tokens)) {}
  /// A bit for each token: whether its bytes go on from a state.
  const std::vector<uint64_t>& of(GrammarStates::State state);
  GrammarStates& states() { return states_; }
  const TokenBytes& tokens() const { return *tokens_; }

 private:
  GrammarStates states_;
  std::shared_ptr<const TokenBytes> tokens_;
  std::unordered_map<GrammarStates::State, std::vector<uint64_t>> masks_;
};

/// Where one answer is in its grammar.
class TokenConstraint {
 public:
  explicit TokenConstraint(std::shared_ptr<TokenMasks> masks)
      : masks_(std::move(masks)), state_(masks_->states().start()) {}
  /// Makes the logits of tokens that do not go on -inf: also those of `ends`, unless the answer may end.
  void apply(std::span<float> logits, std::span<const int32_t> ends);
  /// Follows a token. Error if it does not go on.
  void take(int32_t token);
  /// Whether nothing can follow.
  bool complete() { return masks_->states().only_ends(state_); }
  bool may_end() { return masks_->states().ends(state_); }

 private:
  std::shared_ptr<TokenMasks> masks_;
  GrammarStates::State state_;
};

}  // namespace nought
