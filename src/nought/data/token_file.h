// Token files: tokenized documents on disk. They are memory-mapped, so that the data may be larger than memory.
//
// The layout is little-endian. Each part is padded with zeros to a multiple of 8 bytes:
//   TokenFileHeader                64 bytes
//   tokens                         num_tokens x token_bytes (2: u16, 4: u32)
//   first token of each document   num_documents x u64, the first of them 0, rising
//   mask, if has_mask              one bit per token, lowest bit first: 1 = a target, 0 = context only
// `nought tokenize` writes a folder of such files, 00000.tokens and so on: see token_folder.h.
#pragma once

#include <array>
#include <filesystem>
#include <string>

#include "nought/data/token_store.h"
#include "nought/io/file_format.h"
#include "nought/io/mapped_file.h"

namespace nought {

inline constexpr std::string_view kTokenFileExtension = ".tokens";
inline constexpr FileFormat kTokenFileFormat{"nought-token-file", 1};

struct TokenFileHeader {
  std::array<char, 8> magic{'N', 'O', 'U', 'G', 'H', 'T', 'T', 'K'};
  uint32_t version = kTokenFileFormat.version;
  uint32_t token_bytes = 4;
  uint64_t vocab_size = 0;
  uint64_t num_tokens = 0;
  uint64_t num_documents = 0;
  uint64_t tokenizer = 0;  // the fingerprint of the tokenizer
  uint64_t content = 0;    // a hash of tokens, documents and mask
  uint32_t has_mask = 0;
  uint32_t reserved = 0;
};
static_assert(sizeof(TokenFileHeader) == 64);

/// Collects documents and writes them as a token file.
class TokenFileWriter {
 public:
  TokenFileWriter(int64_t vocab_size, uint64_t tokenizer_fingerprint)
      : vocab_size_(vocab_size), tokenizer_(tokenizer_fingerprint) {}

  /// Adds a document whose tokens are all targets.
  void add(std::span<const int32_t> tokens) { add(tokens, {}); }
  /// Adds a document. targets: 1 for each token that is a target, else 0; empty if all are.
  void add(std::span<const int32_t> tokens, std::span<const uint8_t> targets);
  /// Adds tokens in which documents begin at `starts`. Tokens before the first start continue the last document.
  void append(std::span<const int32_t> tokens, std::span<const uint8_t> targets, std::span<const size_t> starts);
  /// Writes the file, which appears whole or not at all. Error for a token outside the vocabulary.
  void write(const std::filesystem::path& file) const;

  int64_t num_tokens() const { return static_cast<int64_t>(tokens_.size()); }
  int64_t num_documents() const { return static_cast<int64_t>(starts_.size()); }

 private:
  int64_t vocab_size_;
  uint64_t tokenizer_;
  std::vector<int32_t> tokens_;
  std::vector<uint64_t> starts_;
  std::vector<uint8_t> mask_;  // as in the file
  bool masked_ = false;
};

class TokenFile final : public TokenStore {
 public:
  /// Maps the file. IoError if it is truncated or its header is wrong. Tokens are checked when they are read.
  explicit TokenFile(const std::filesystem::path& file);

  const TokenFileHeader& header() const { return header_; }
  int64_t num_documents() const { return static_cast<int64_t>(header_.num_documents); }

  int64_t size() const override { return static_cast<int64_t>(header_.num_tokens); }
  void read(int64_t begin, std::span<int32_t> out) const override;
  bool has_mask() const override { return header_.has_mask != 0; }
  void read_mask(int64_t begin, std::span<uint8_t> out) const override;
  void document_starts(Interval range, std::vector<int64_t>& starts) const override;
  /// It is computed from the header's content hash, so that no token is read.
  uint64_t fingerprint(Interval range) const override;

 private:
  template <class T>
  void copy(int64_t begin, std::span<int32_t> out) const;

  std::string name_;
  MappedFile file_;
  TokenFileHeader header_;
  const char* tokens_ = nullptr;
  const uint64_t* starts_ = nullptr;
  const uint8_t* mask_ = nullptr;
};

}  // namespace nought
