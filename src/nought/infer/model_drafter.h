// ModelDrafter: a smaller model guesses how sequences go on, with a cache of its own.
//
// It draws by its own probabilities with the seed and the position with which the token is drawn in the end. Where both
// models are nearly sure of each other's tokens, sampled guesses are right as often as greedy ones.
#pragma once

#include "nought/infer/cached_decoder.h"
#include "nought/infer/drafter.h"

namespace nought {

class ModelDrafter final : public Drafter {
 public:
  /// options: as those of the engine that asks. The decoder has the vocabulary of the engine's, and outlives this.
  /// ConfigError unless it shares_beginnings(), as its own guesses are taken out of its cache.
  ModelDrafter(Decoder& decoder, const Context& context, DType dtype, const CacheOptions& options);
  /// No guess for a sequence that is too long for it.
  std::vector<std::vector<int32_t>> guess(std::span<const DraftRequest> requests) override;

 private:
  /// A request, with what is guessed of it so far.
  struct Draft {
    const DraftRequest* request = nullptr;
    std::vector<int32_t> text = {};  // its tokens, and the guessed ones
    std::vector<int32_t> guess = {};
  };
  /// Computes what the cache lacks of these texts, or a part of it, and draws the next token of those that are whole.
  void compute(std::span<Draft*> drafts);
  void draw(Draft& draft, std::span<float> logits) const;

  Context context_;
  CachedDecoder cache_;
};

}  // namespace nought
