// TokenDataset: cuts the tokens of documents into samples of seq_length inputs and seq_length targets.
//
// A separator follows each document of text. Sample i reads seq_length + 1 tokens from token i * seq_length on. The
// first seq_length are its inputs, the last seq_length its targets. So targets are shifted already, and no token is a
// target twice. A sample may hold the end of one document and the start of the next. The last tokens, too few for a
// sample, are not used. A target is ignored if a mask excludes its token. With separate_documents it is also ignored if
// its input belongs to another document. The samples of several sources lie one behind the other; TrainSampler applies
// their weights.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "nought/base/math.h"
#include "nought/data/corpus.h"
#include "nought/data/sample_order.h"
#include "nought/data/token_store.h"
#include "nought/nn/batch.h"
#include "nought/text/tokenizer.h"

namespace nought {

/// The files of one source of a mixture.
struct DataSource {
  std::vector<std::filesystem::path> files;  // .tokens files are mapped, others encoded
  double weight = 0;                         // its share of training; 0 for all sources: as much as each holds
};

struct DatasetOptions {
  int64_t seq_length = 0;
  bool separate_documents = false;  // attention and targets do not cross from one document into another
  bool keep_remainder = false;      // the last tokens of a source, too few for a sample, become a padded sample
  CorpusOptions corpus = {};        // how files that are encoded are read
};

/// How long the conversations of data are: documents of which some tokens are no targets.
struct ConversationLengths {
  int64_t count = 0;       // conversations
  int64_t longer = 0;      // of more tokens than a sample has
  int64_t longest = 0;     // tokens
  int64_t most_of_99 = 0;  // as many tokens as 99% of them have at most
};

/// Adds encoded documents.
void append(const EncodedPortion& portion, TokenArray& tokens);

/// Checks those files that are token files. IoError if one is damaged; ConfigError if another tokenizer wrote it.
void check_token_files(std::span<const std::filesystem::path> files, const Tokenizer& tokenizer);

class TokenDataset {
 public:
  /// The tokens `range` of a store, as one source.
  TokenDataset(std::shared_ptr<const TokenStore> tokens, Interval range, int64_t seq_length);
  /// Encodes text files and maps token files, in the order of each source. IoError, ConfigError.
  static TokenDataset from_sources(std::span<const DataSource> sources, const Tokenizer& tokenizer,
                                   const DatasetOptions& options);

  int64_t num_tokens() const;
  int64_t num_samples() const;
  int64_t seq_length() const { return options_.seq_length; }
  bool separates_documents() const { return options_.separate_documents; }
  /// Copies a sample's tokens. inputs, targets: [seq_length].
  void sample(int64_t index, std::span<int32_t> inputs, std::span<int32_t> targets) const;
  /// The positions of a sample's inputs at which documents begin, rising, the first always 0.
  std::vector<int32_t> document_starts(int64_t index) const;
  /// How many targets of a sample are not ignored. Padding is ignored.
  int64_t num_targets(int64_t index) const;
  /// How many targets of all samples are not ignored.
  int64_t num_targets() const;
  ConversationLengths conversation_lengths() const;
  /// True if no target is ignored in any sample.
  bool all_targets_count() const;

  /// What each source has, and its share of training.
  std::vector<SourceShare> shares() const;

  /// Splits off the last `fraction`, in [0, 1), of every source, in whole samples. Returns the rest and what was split
  /// off. No token is a target in both.
  std::pair<TokenDataset, TokenDataset> split_tail(double fraction) const;
  /// The data with keep_remainder, so that every token but the first of each source is a target once.
  TokenDataset with_remainder() const;
  /// ConfigError unless there are at least this many samples.
  void require_batch(int64_t samples) const;
  /// A number that differs if any token differs. A resumed run checks by it that it reads the same data.
  uint64_t fingerprint() const;

 private:
  /// The part of a store that is one source.
  struct SourceTokens {
    std::shared_ptr<const TokenStore> tokens;
    Interval range;
    double weight = 0;
  };
  /// Where a sample's length + 1 tokens lie: from token `begin` of the source's store on.
  struct SampleTokens {
    const SourceTokens* source;
    int64_t begin, length;
  };
  explicit TokenDataset(const DatasetOptions& options);
  int64_t num_samples(const SourceTokens& source) const;
  SampleTokens tokens_of(int64_t index) const;
  bool nothing_is_masked() const;
  /// For each target of the sample: 0 if it is ignored, else 1.
  std::vector<uint8_t> target_mask(const SampleTokens& sample) const;

  DatasetOptions options_;
  std::vector<SourceTokens> sources_;
};

}  // namespace nought
