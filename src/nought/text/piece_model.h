// PieceModel: turns a piece of text into token ids, by merging pairs (BPE), by the likeliest segmentation (Unigram), or
// by the longest token that the rest of a word begins with (WordPiece).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "nought/text/vocabulary.h"

namespace nought {

class PieceModel {
 public:
  virtual ~PieceModel() = default;
  /// Appends the ids of the pieces, one after the other. They are valid UTF-8. Thread safe.
  virtual void encode(std::span<const std::string_view> pieces, std::vector<int32_t>& ids) const = 0;
  /// Appends the ids of bytes that are not UTF-8. ConfigError if the vocabulary cannot express them.
  virtual void encode_bytes(std::string_view bytes, std::vector<int32_t>& ids) const = 0;
};

/// The ids for text that no token has: those of its bytes, or the id of unknown text.
class Fallback {
 public:
  /// byte_level: a byte has the token of that single byte. Else, with byte_fallback: "<0x00>" to "<0xFF>".
  Fallback(const Vocabulary& vocabulary, bool byte_level, bool byte_fallback, std::optional<int32_t> unknown);

  /// Appends one id per byte if all of them have one, else the id of unknown text. ConfigError if there is none.
  void encode(std::string_view bytes, bool fuse_unknown, std::vector<int32_t>& ids) const;
  std::optional<int32_t> unknown() const { return unknown_; }

 private:
  std::array<int32_t, 256> byte_ids_;  // -1: none
  std::optional<int32_t> unknown_;
};

/// A pair of neighbouring tokens that becomes one. The pair with the lowest rank is merged first; of equals the
/// leftmost.
struct Merge {
  int32_t left, right, merged;
  uint32_t rank;
};

struct BpeOptions {
  bool byte_level = true;      // merging starts from bytes; false: from characters
  bool ignore_merges = false;  // a piece that is a token becomes that token without merging
  bool byte_fallback = false;  // a character without a token becomes its bytes
  bool fuse_unknown = false;   // a run of unknown characters becomes one unknown token
  std::optional<int32_t> unknown = std::nullopt;
};

/// `vocabulary` must outlive the model.
std::unique_ptr<PieceModel> make_bpe(const Vocabulary& vocabulary, const std::vector<Merge>& merges,
                                     const BpeOptions& options);
/// The merges of a tiktoken file: every pair of tokens whose bytes together are a token, ranked by that token's id.
std::vector<Merge> merges_by_rank(const Vocabulary& vocabulary);

struct UnigramOptions {
  bool byte_fallback = false;
  std::optional<int32_t> unknown = std::nullopt;
};

/// scores: the logarithm of each token's probability, by id. `vocabulary` must outlive the model.
std::unique_ptr<PieceModel> make_unigram(const Vocabulary& vocabulary, std::vector<double> scores,
                                         const UnigramOptions& options);

struct WordPieceOptions {
  int32_t unknown = 0;            // what a word becomes of which some part is no token
  std::string continuing = "##";  // stands before tokens within a word
  size_t longest_word = 100;      // characters; a longer word is unknown
};

/// `vocabulary` must outlive the model.
std::unique_ptr<PieceModel> make_wordpiece(const Vocabulary& vocabulary, const WordPieceOptions& options);

}  // namespace nought
