// PieceModel: a piece of text to token ids, and the two ways to do it: merging pairs (BPE) and the likeliest
// segmentation (Unigram).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "nought/data/vocabulary.h"

namespace nought {

class PieceModel {
 public:
  virtual ~PieceModel() = default;
  /// Appends the ids of pieces of valid UTF-8, one after the other. Thread safe.
  virtual void encode(std::span<const std::string_view> pieces, std::vector<int32_t>& ids) const = 0;
  /// Appends the ids of bytes that are not UTF-8. ConfigError if the vocabulary cannot express them.
  virtual void encode_bytes(std::string_view bytes, std::vector<int32_t>& ids) const = 0;
};

/// Which ids stand for bytes, for characters that no token has, and for what cannot be expressed at all.
class Fallback {
 public:
  /// byte_level: the tokens of single bytes; else, with byte_fallback, the tokens "<0x00>" to "<0xFF>".
  Fallback(const Vocabulary& vocabulary, bool byte_level, bool byte_fallback, std::optional<int32_t> unknown);

  /// Appends one id per byte if all of them have one, else the id of unknown text. ConfigError if there is none.
  void encode(std::string_view bytes, bool fuse_unknown, std::vector<int32_t>& ids) const;
  std::optional<int32_t> unknown() const { return unknown_; }

 private:
  std::array<int32_t, 256> byte_ids_;  // -1: none
  std::optional<int32_t> unknown_;
};

/// A pair of neighbours that becomes one token. The pair of the lowest rank goes first, the leftmost of equals.
struct Merge {
  int32_t left, right, merged;
  uint32_t rank;
};

struct BpeOptions {
  bool byte_level = true;      // pieces start as bytes; else as characters
  bool ignore_merges = false;  // a piece that is a token is that token, whatever the merges say
  bool byte_fallback = false;  // characters without a token become bytes
  bool fuse_unknown = false;   // one unknown token for a run of unknown characters
  std::optional<int32_t> unknown = std::nullopt;
};

/// `vocabulary` must outlive the model.
std::unique_ptr<PieceModel> make_bpe(const Vocabulary& vocabulary, const std::vector<Merge>& merges,
                                     const BpeOptions& options);
/// Every pair of tokens whose bytes together are a token, ranked by the id of that: the merges of tiktoken's files.
std::vector<Merge> merges_by_rank(const Vocabulary& vocabulary);

struct UnigramOptions {
  bool byte_fallback = false;
  std::optional<int32_t> unknown = std::nullopt;
};

/// scores: one per id of the vocabulary, the logarithm of its probability. `vocabulary` must outlive the model.
std::unique_ptr<PieceModel> make_unigram(const Vocabulary& vocabulary, std::vector<double> scores,
                                         const UnigramOptions& options);

}  // namespace nought
