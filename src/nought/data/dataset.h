// TokenDataset: documents as arrays of tokens, cut into samples of seq_length inputs and their targets.
//
// A separator follows each document of text. Sample i reads seq_length + 1 tokens from token i * seq_length on: the
// inputs are the first seq_length, the targets the last, so targets are shifted already and no token is a target twice.
// A window may hold the end of one document and the start of the next. The last tokens that fill no window are not
// used. Tokens that a mask excludes, and, with separate_documents, targets whose input is of another document, are
// ignored targets. Several sources have their samples one behind the other; their weights are the sampler's business.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "nought/base/math.h"
#include "nought/data/token_store.h"
#include "nought/data/tokenizer.h"
#include "nought/nn/batch.h"

namespace nought {

/// Files that are one source of a mixture.
struct DataSource {
  std::vector<std::filesystem::path> files;  // .tokens files; others are encoded, of .jsonl files the field "text"
  double weight = 0;                         // how much of training it is; 0 for all sources: as much as they hold
};

struct DatasetOptions {
  int64_t seq_length = 0;
  bool separate_documents = false;  // no target is predicted from another document, no token sees one
  bool keep_remainder = false;      // the last tokens of a source, too few for a sample, are a padded one
};

/// Maps those of the files that are token files. IoError, and ConfigError if another tokenizer wrote one.
void check_token_files(std::span<const std::filesystem::path> files, const Tokenizer& tokenizer);

class TokenDataset {
 public:
  TokenDataset(std::shared_ptr<const TokenStore> tokens, Interval range, int64_t seq_length);
  /// Reads text files and encodes them, maps token files; in the given order. IoError, ConfigError.
  static TokenDataset from_files(std::span<const std::filesystem::path> files, const Tokenizer& tokenizer,
                                 int64_t seq_length);
  static TokenDataset from_sources(std::span<const DataSource> sources, const Tokenizer& tokenizer,
                                   const DatasetOptions& options);

  int64_t num_tokens() const;
  int64_t num_samples() const;
  int64_t seq_length() const { return options_.seq_length; }
  bool separates_documents() const { return options_.separate_documents; }
  /// inputs, targets: [seq_length].
  void sample(int64_t index, std::span<int32_t> inputs, std::span<int32_t> targets) const;
  /// Where in a sample's inputs documents begin: rising, the first is always 0.
  std::vector<int32_t> document_starts(int64_t index) const;
  /// How many targets of a sample are not ignored; padding is.
  int64_t num_targets(int64_t index) const;
  /// True if no target is ignored in any sample.
  bool all_targets_count() const;

  /// How many samples each source has, and its share of training: positive, with sum 1.
  struct Share {
    int64_t num_samples;
    double weight;
  };
  std::vector<Share> shares() const;

  /// The dataset without the last tokens of its sources, and these: fraction in [0, 1) of them, in whole samples. No
  /// token is a target in both.
  std::pair<TokenDataset, TokenDataset> split_tail(double fraction) const;
  /// The same with keep_remainder, so that every token but a source's first is a target once.
  TokenDataset with_remainder() const;
  /// ConfigError unless there are enough samples for one batch.
  void require_batch(int64_t samples) const;
  /// Differs if any token does: a resumed run checks that it reads the same data.
  uint64_t fingerprint() const;

 private:
  struct SourceTokens {
    std::shared_ptr<const TokenStore> tokens;
    Interval range;
    double weight = 0;
  };
  /// A sample's tokens: length + 1 from `begin` on.
  struct SampleTokens {
    const SourceTokens* source;
    int64_t begin, length;
  };
  explicit TokenDataset(const DatasetOptions& options);
  int64_t num_samples(const SourceTokens& source) const;
  SampleTokens tokens_of(int64_t index) const;
  bool nothing_is_masked() const;
  /// Marks the targets of a window that are ignored: 0, else 1.
  std::vector<uint8_t> target_mask(const SampleTokens& sample) const;

  DatasetOptions options_;
  std::vector<SourceTokens> sources_;
};

}  // namespace nought
