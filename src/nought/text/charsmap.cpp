#include "nought/text/charsmap.h"

#include <cstring>

#include <utf8proc.h>

#include "nought/base/base64.h"
#include "nought/base/error.h"
#include "nought/text/unicode.h"

namespace nought {

namespace {

/// As of every step that writes texts: SentencePiece's own maps have no longer one than 33 bytes.
constexpr size_t kLongestText = 64;

// One unit of a double array.
constexpr uint32_t label_of(uint32_t unit) { return unit & (uint32_t{1} << 31 | 0xFF); }
constexpr uint32_t offset_of(uint32_t unit) { return (unit >> 10) << ((unit & (uint32_t{1} << 9)) >> 6); }
constexpr bool has_leaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
constexpr uint32_t value_of(uint32_t unit) { return unit & ((uint32_t{1} << 31) - 1); }

/// The number of bytes of the grapheme at the start of valid, non-empty UTF-8.
size_t grapheme_length(std::string_view text) {
  int32_t state = 0;
  char32_t last = first_code_point(text);
  size_t length = utf8_length(text[0]);
  while (length < text.size()) {
    const char32_t next = first_code_point(text.substr(length));
    if (utf8proc_grapheme_break_stateful(static_cast<int32_t>(last), static_cast<int32_t>(next), &state)) break;
    length += utf8_length(text[length]);
    last = next;
  }
  return length;
}

class Precompiled final : public Normalizer {
 public:
  explicit Precompiled(Charsmap map) : map_(std::move(map)) {}
  void apply(std::string& text) const override {
    constexpr size_t kLongestWhole = 5;
    std::string out;
    out.reserve(text.size());
    for (std::string_view left = text; !left.empty();) {
      std::string_view grapheme = left.substr(0, grapheme_length(left));
      left.remove_prefix(grapheme.size());
      const auto whole = grapheme.size() <= kLongestWhole ? map_.replacement(grapheme) : std::nullopt;
      if (whole) {
        out += *whole;
        continue;
      }
      for (; !grapheme.empty(); grapheme.remove_prefix(utf8_length(grapheme[0]))) {
        const std::string_view character = grapheme.substr(0, utf8_length(grapheme[0]));
        out += map_.replacement(character).value_or(character);
      }
    }
    text = std::move(out);
  }

 private:
  Charsmap map_;
};

}  // namespace

Charsmap::Charsmap(std::string_view bytes) {
  uint32_t size = 0;
  require<ConfigError>(bytes.size() > sizeof size, "precompiled_charsmap has {} bytes: expected a trie and texts",
                       bytes.size());
  std::memcpy(&size, bytes.data(), sizeof size);
  bytes.remove_prefix(sizeof size);
  require<ConfigError>(size > 0 && size % sizeof(uint32_t) == 0 && size <= bytes.size(),
                       "precompiled_charsmap: its trie is said to have {} bytes, {} are there", size, bytes.size());
  trie_.resize(size / sizeof(uint32_t));
  std::memcpy(trie_.data(), bytes.data(), size);
  texts_ = bytes.substr(size);
  require<ConfigError>(texts_.empty() || texts_.back() == '\0', "precompiled_charsmap: its last text has no end");
  require<ConfigError>(is_valid_utf8(texts_), "precompiled_charsmap: its texts are not valid UTF-8");
  for (size_t begin = 0; begin < texts_.size();) {
    const size_t length = texts_.find('\0', begin) - begin;
    require<ConfigError>(length <= kLongestText,
                         "precompiled_charsmap: a character becomes {} bytes, at most {} are taken", length,
                         kLongestText);
    begin += length + 1;
  }
}

std::optional<std::string_view> Charsmap::replacement(std::string_view text) const {
  size_t node = offset_of(trie_[0]);
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    node ^= byte;
    if (byte == 0 || node >= trie_.size() || label_of(trie_[node]) != byte) return std::nullopt;
    const uint32_t unit = trie_[node];
    node ^= offset_of(unit);
    if (!has_leaf(unit)) continue;
    const size_t begin = node < trie_.size() ? value_of(trie_[node]) : texts_.size();
    if (begin >= texts_.size()) return std::nullopt;
    return std::string_view(texts_.data() + begin);
  }
  return std::nullopt;
}

std::unique_ptr<Normalizer> make_precompiled(std::string_view base64) {
  const std::optional<std::string> bytes = decode_base64(base64);
  require<ConfigError>(bytes.has_value(), "precompiled_charsmap is not base64");
  return std::make_unique<Precompiled>(Charsmap(*bytes));
}

}  // namespace nought
