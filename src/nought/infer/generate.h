// Generation: several sequences together, token by token, with a KV cache.
#pragma once

#include <vector>

#include "nought/infer/sampling.h"
#include "nought/models/decoder.h"

namespace nought {

struct GenerateOptions {
  int64_t max_new_tokens = 128;
  int64_t batch = 8;  // sequences that are computed together
  SamplingParameters sampling = {};
  std::vector<int32_t> stop_ids = {};  // a sequence ends before one of these
};

/// Hears of tokens as they come; prompts are known by their index.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  /// False ends the sequence: this was its last token.
  virtual bool on_token(size_t prompt, int32_t token) = 0;
  virtual void on_end(size_t /*prompt*/) {}
};

/// Keeps the cache from call to call: what a prompt has in common with the sequence before it (a conversation that goes
/// on) is not computed again.
class Generator {
 public:
  /// capacity: tokens that a sequence may have, with those that are generated.
  Generator(Decoder& decoder, const Context& context, DType dtype, int64_t capacity, int64_t sequences);

  /// Continues the prompts, each of at least one token, and returns the new tokens of each: those that it would get
  /// alone, as far as rounding goes. As many as the generator has sequences are computed together, and the next one
  /// begins when one ends; a sequence ends at max_new_tokens, before a stop id, when the sink says so, or when its part
  /// of the cache is full. ConfigError if a prompt does not fit.
  std::vector<std::vector<int32_t>> run(std::span<const std::vector<int32_t>> prompts, const GenerateOptions& options,
                                        TokenSink& sink);

 private:
  struct Sequence {
    size_t prompt;
    int64_t slot;               // in the cache
    std::vector<int32_t> next;  // to be fed
  };
  void check(std::span<const std::vector<int32_t>> prompts, const GenerateOptions& options) const;
  Sequence start(size_t prompt, std::span<const int32_t> ids, int64_t slot);
  /// Draws the next token; false if the sequence has ended.
  bool advance(Sequence& sequence, std::span<float> logits, const GenerateOptions& options,
               std::vector<int32_t>& produced, TokenSink& sink) const;

  Decoder& decoder_;
  Context context_;
  DecoderCache cache_;
};

/// The same with a generator made for these prompts. Error if a prompt and its new tokens exceed the positions of a
/// model that has learned them.
std::vector<std::vector<int32_t>> generate(Decoder& decoder, const Context& context, DType dtype,
                                           std::span<const std::vector<int32_t>> prompts,
                                           const GenerateOptions& options, TokenSink& sink);

}  // namespace nought
