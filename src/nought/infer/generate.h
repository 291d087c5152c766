// Generation: continues several prompts together, token by token, with a KV cache.
#pragma once

#include <vector>

#include "nought/infer/inference_engine.h"

namespace nought {

/// The most tokens of a sequence and sequences of a batch that may be asked for: beyond any model, and so that the size
/// of a cache for them is a number that int64_t holds. Whether there is memory for it shows when it is made.
inline constexpr int64_t kMostTokens = int64_t{1} << 24, kMostSequences = int64_t{1} << 16;

/// So many tokens of prompts are computed at once: activations stay bounded.
inline constexpr int64_t kTokensAtOnce = 4096;

struct GenerateOptions {
  int64_t max_new_tokens = 128;
  int64_t batch = 8;                   // how many sequences are computed together
  std::optional<DType> kv_dtype = {};  // what the cache keeps; see Decoder::make_cache()
  Speculation speculation = {};        // see InferenceEngine::Options
  SamplingParameters sampling = {};
  std::vector<int32_t> stop_ids = {};  // a sequence ends before one of these
  std::vector<uint64_t> seeds = {};    // one for each prompt; none: all have that of `sampling`

  /// ConfigError unless numbers of tokens and sequences are within 1 and their bounds, and sampling parameters are
  /// valid.
  void validate() const;
};

/// Receives tokens as they are generated. A prompt is named by its index.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  /// Receives the next token of a sequence. Returns false to end the sequence with this token.
  virtual bool on_token(size_t prompt, int32_t token) = 0;
  /// Whether to receive log-probabilities, which cost a pass over the logits of each token.
  virtual bool wants_log_probabilities() const { return false; }
  /// Receives, before the next token, its log_probability() by the model's logits as they are: before any penalty or
  /// temperature.
  virtual void on_log_probability(size_t /*prompt*/, float /*log_probability*/) {}
  /// The sequence has ended.
  virtual void on_end(size_t /*prompt*/) {}
};

/// Generates with a cache that it keeps from call to call. If a prompt begins like the sequence that was in its part of
/// the cache before, as when a conversation goes on, that beginning is not computed again.
class Generator {
 public:
  /// capacity: the most tokens of a sequence, prompt and generated ones together. sequences: how many the cache holds.
  /// kv_dtype: see Decoder::make_cache(). speculation: see InferenceEngine::Options.
  Generator(Decoder& decoder, const Context& context, DType dtype, int64_t capacity, int64_t sequences,
            std::optional<DType> kv_dtype = {}, Speculation speculation = {});

  /// Continues the prompts, each of at least one token, and returns the new tokens of each. A prompt gets the tokens
  /// that it would get alone. As many prompts as the cache has sequences are computed together; when
  /// one ends, the next one begins. A sequence ends at max_new_tokens, before a stop id, when the sink says so, or when
  /// its part of the cache is full. ConfigError if a prompt does not fit.
  std::vector<std::vector<int32_t>> run(std::span<const std::vector<int32_t>> prompts, const GenerateOptions& options,
                                        TokenSink& sink);

 private:
  InferenceEngine engine_;
};

/// Generates with a Generator made for these prompts. Error if a prompt and its new tokens exceed the positions of a
/// model with learned positions.
std::vector<std::vector<int32_t>> generate(Decoder& decoder, const Context& context, DType dtype,
                                           std::span<const std::vector<int32_t>> prompts,
                                           const GenerateOptions& options, TokenSink& sink);

}  // namespace nought
