// Embedder: makes a vector of each text, by the hidden states of its tokens.
//
// Texts of a pass lie one behind the other in one row, each a document of its own: there is no padding, and a text gets
// the vector that it would get alone. Non-goals: a cache, ranks that share texts.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "nought/infer/embedding_config.h"
#include "nought/models/decoder.h"
#include "nought/text/tokenizer.h"

namespace nought {

/// The tokens of a text.
struct EmbeddedText {
  std::vector<int32_t> ids = {};
  int64_t begin = 0;  // the first token that is pooled; those before belong to a prompt
  bool cut = false;   // whether tokens were left out
};

class Embedder {
 public:
  /// config: with a pooling. ConfigError if its dense layers do not fit the model. All must outlive it.
  Embedder(const EmbeddingConfig& config, Decoder& decoder, const Tokenizer& tokenizer, const Context& context);

  /// The most tokens of a text, special ones included. ConfigError if there is no room beside those.
  static int64_t most_tokens(const EmbeddingConfig& config, const ModelConfig& model, const Tokenizer& tokenizer);

  /// The elements of a vector.
  int64_t dimensions() const { return dimensions_; }
  int64_t max_tokens() const { return max_tokens_; }
  /// The tokens of a text behind a prompt. Special tokens that they spell count as such, as in sentence-transformers.
  EmbeddedText tokens(std::string_view prompt, std::string_view text) const;
  /// A vector for each text, one behind the other: [texts * dimensions()]. batch: how many texts a pass computes; texts
  /// of a similar length are computed together. ConfigError for a text without tokens.
  std::vector<float> embed(std::span<const EmbeddedText> texts, int64_t batch) const;

 private:
  /// The hidden states of the tokens of some texts, [all their tokens, hidden], on the host.
  std::vector<float> hidden_of(std::span<const EmbeddedText* const> texts) const;
  void embed_batch(std::span<const EmbeddedText* const> texts, std::span<float* const> vectors) const;

  const EmbeddingConfig& config_;
  Decoder& decoder_;
  const Tokenizer& tokenizer_;
  Context context_;
  int64_t dimensions_ = 0, max_tokens_ = 0;
};

/// Writes a file of safetensors: "embeddings" [texts, elements] f32, and if asked for "token_counts" [texts] i64.
/// IoError.
void save_embeddings(const std::filesystem::path& file, std::span<const float> vectors,
                     std::span<const EmbeddedText> texts, bool token_counts);

}  // namespace nought
