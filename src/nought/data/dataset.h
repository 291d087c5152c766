// TokenDataset: all documents as one array of tokens, cut into samples of seq_length inputs and their targets.
//
// A separator follows each document. Sample i reads seq_length + 1 tokens from token i * seq_length on: the inputs are
// the first seq_length, the targets the last, so targets are shifted already and no token is a target twice. A window
// may hold the end of one document and the start of the next. The last tokens that fill no window are not used.
// Non-goals: data larger than the memory; every rank holds all tokens, one to four bytes each.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "nought/base/math.h"
#include "nought/data/tokenizer.h"

namespace nought {

/// Tokens in the narrowest type that holds the vocabulary.
class TokenArray {
 public:
  explicit TokenArray(int64_t vocab_size);
  void append(std::span<const int32_t> tokens);
  int64_t size() const;
  int64_t bytes() const;
  /// Copies tokens [begin, begin + out.size()).
  void read(int64_t begin, std::span<int32_t> out) const;

 private:
  std::variant<std::vector<uint8_t>, std::vector<uint16_t>, std::vector<int32_t>> values_;
};

class TokenDataset {
 public:
  TokenDataset(std::shared_ptr<const TokenArray> tokens, Interval range, int64_t seq_length);
  /// Reads and encodes the files, in the given order. IoError, ConfigError.
  static TokenDataset from_files(std::span<const std::filesystem::path> files, const Tokenizer& tokenizer,
                                 int64_t seq_length);

  int64_t num_tokens() const { return range_.size(); }
  int64_t num_samples() const;
  int64_t seq_length() const { return seq_length_; }
  /// inputs, targets: [seq_length].
  void sample(int64_t index, std::span<int32_t> inputs, std::span<int32_t> targets) const;

  /// The dataset without its last tokens, and these: fraction in [0, 1) of them, in whole samples. No token is a target
  /// in both.
  std::pair<TokenDataset, TokenDataset> split_tail(double fraction) const;
  /// ConfigError unless there are enough samples for one batch.
  void require_batch(int64_t samples) const;
  /// Differs if any token does: a resumed run checks that it reads the same data.
  uint64_t fingerprint() const;

 private:
  std::shared_ptr<const TokenArray> tokens_;
  Interval range_;
  int64_t seq_length_;
};

}  // namespace nought
