// TextTokenizer: a tokenizer made of Hugging Face's steps: added tokens, normalizers, pre-tokenizers, a piece model and
// a decoder. tokenizer_files.h reads the files that fill it in.
#pragma once

#include <memory>
#include <string>

#include "nought/text/added_tokens.h"
#include "nought/text/normalizer.h"
#include "nought/text/piece_model.h"
#include "nought/text/pre_tokenizer.h"
#include "nought/text/token_decoder.h"
#include "nought/text/tokenizer.h"
#include "nought/text/vocabulary.h"

namespace nought {

/// The steps and tokens of a tokenizer.
struct TextPipeline {
  std::string name;
  std::unique_ptr<Vocabulary> vocabulary = std::make_unique<Vocabulary>();
  AddedTokens added;
  Normalizers normalizers;
  PreTokenizers pre_tokenizers;
  std::unique_ptr<PieceModel> model;
  TokenDecoder decoder;
  std::vector<int32_t> prefix, suffix;  // ids before and after every text
  std::optional<int32_t> separator;     // the id that ends a document
  uint64_t fingerprint = 0;
};

class TextTokenizer final : public Tokenizer {
 public:
  explicit TextTokenizer(TextPipeline pipeline);

  std::string_view name() const override { return pipeline_.name; }
  int64_t vocab_size() const override { return vocab_size_; }
  std::string decode(std::span<const int32_t> ids) const override;
  int32_t separator() const override;
  bool has_separator() const override { return pipeline_.separator.has_value(); }
  std::span<const int32_t> prefix() const override { return pipeline_.prefix; }
  std::span<const int32_t> suffix() const override { return pipeline_.suffix; }
  std::optional<int32_t> find(std::string_view token) const override;
  std::optional<MarkerMatch> next_marker(std::string_view text, size_t from) const override;
  int64_t text_bytes(int32_t id) const override;
  size_t cut_point(std::string_view text, size_t from) const override;
  uint64_t fingerprint() const override { return pipeline_.fingerprint; }

 private:
  void append(std::string_view text, EncodeOptions options, std::vector<int32_t>& ids) const override;
  /// The spelling of an added token; null for any other id.
  const std::string* added_by_id(int32_t id) const;
  void append_valid(std::string_view text, EncodeOptions options, std::vector<int32_t>& ids) const;
  void append_section(std::string_view section, EncodeOptions options, std::vector<int32_t>& ids) const;
  void append_normalized(std::string_view text, bool at_start, std::vector<int32_t>& ids) const;

  TextPipeline pipeline_;
  struct Added {
    std::string content;  // "" for an id of the vocabulary
    bool special = false;
  };
  std::vector<Added> added_by_id_;
  int64_t vocab_size_ = 0;
  bool cuts_between_lines_ = false;
};

}  // namespace nought
