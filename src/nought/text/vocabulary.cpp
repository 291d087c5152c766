#include "nought/text/vocabulary.h"

#include <array>

#include <fmt/format.h>

#include "nought/base/error.h"
#include "nought/text/unicode.h"

namespace nought {

namespace {

constexpr int64_t kMaxId = int64_t{1} << 24;  // far beyond any vocabulary: an absurd id must not become an allocation

// GPT-2's table: printable Latin-1 stands for itself, the other bytes for U+0100 and on.
struct ByteCharacters {
  std::array<char32_t, 256> character{};
  std::array<int16_t, 0x200> byte{};

  constexpr ByteCharacters() {
    byte.fill(-1);
    char32_t next = 0x100;
    for (size_t b = 0; b < 256; ++b) {
      const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      character[b] = printable ? static_cast<char32_t>(b) : next++;
      byte[character[b]] = static_cast<int16_t>(b);
    }
  }
};
constexpr ByteCharacters kByteCharacters;

}  // namespace

void Vocabulary::add(std::string token, int64_t id) {
  require<ConfigError>(0 <= id && id < kMaxId, "the token id {} is not in [0, {})", id, kMaxId);
  const auto index = static_cast<size_t>(id);
  if (index >= tokens_.size()) tokens_.resize(index + 1, nullptr);
  if (tokens_[index] && *tokens_[index] == token) return;
  require<ConfigError>(!tokens_[index], "the token id {} is given twice", id);
  tokens_[index] = &storage_.emplace_back(std::move(token));
  ids_.emplace(*tokens_[index], static_cast<int32_t>(id));
}

std::optional<int32_t> Vocabulary::find(std::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? std::nullopt : std::optional<int32_t>(found->second);
}

const std::string* Vocabulary::token(int64_t id) const {
  return 0 <= id && id < size() ? tokens_[static_cast<size_t>(id)] : nullptr;
}

std::string byte_token(uint8_t byte) { return fmt::format("<0x{:02X}>", byte); }

std::optional<uint8_t> byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  int value = 0;
  for (const char c : token.substr(3, 2)) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit && !(c >= 'A' && c <= 'F')) return std::nullopt;
    value = value * 16 + (digit ? c - '0' : c - 'A' + 10);
  }
  return static_cast<uint8_t>(value);
}

std::string bytes_to_characters(std::string_view bytes) {
  std::string characters;
  for (const char byte : bytes) append_utf8(characters, kByteCharacters.character[static_cast<uint8_t>(byte)]);
  return characters;
}

std::optional<std::string> characters_to_bytes(std::string_view characters) {
  if (!is_valid_utf8(characters)) return std::nullopt;
  std::string bytes;
  for (size_t i = 0; i < characters.size(); i += utf8_length(characters[i])) {
    const char32_t c = first_code_point(characters.substr(i));
    if (c >= kByteCharacters.byte.size() || kByteCharacters.byte[c] < 0) return std::nullopt;
    bytes += static_cast<char>(kByteCharacters.byte[c]);
  }
  return bytes;
}

}  // namespace nought
