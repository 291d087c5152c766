// Vocabulary: maps ids to the bytes of tokens, and back. Ids may have gaps.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace nought {

class Vocabulary {
 public:
  /// Adds a token. If two ids have the same bytes, find() gives the one that was added first. ConfigError for an id
  /// that is negative, absurdly large, or taken by another token.
  void add(std::string token, int64_t id);

  /// One more than the largest id.
  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }
  std::optional<int32_t> find(std::string_view token) const;
  /// The bytes of a token; null for an id without one.
  const std::string* token(int64_t id) const;

 private:
  std::deque<std::string> storage_;
  std::unordered_map<std::string_view, int32_t> ids_;  // keys point into storage_, whose strings do not move
  std::vector<const std::string*> tokens_;
};

/// The token "<0x0A>" that stands for a byte in vocabularies with byte fallback.
std::string byte_token(uint8_t byte);
/// The byte that such a token stands for.
std::optional<uint8_t> byte_of_token(std::string_view token);

/// The printable characters by which byte-level BPE writes bytes (GPT-2's bytes_to_unicode).
std::string bytes_to_characters(std::string_view bytes);
/// The bytes that such characters stand for; empty if one of them stands for no byte.
std::optional<std::string> characters_to_bytes(std::string_view characters);

}  // namespace nought
