// UTF-8: which bytes are characters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace nought {

/// The number of bytes of the longest prefix that is valid UTF-8.
size_t valid_utf8_prefix(std::string_view text);
inline bool is_valid_utf8(std::string_view text) { return valid_utf8_prefix(text) == text.size(); }
/// The length of the valid character at the start of a text that is not empty; 0 if there is none.
size_t valid_utf8_character(std::string_view text);
/// The number of bytes of the character whose first byte is `lead`, in valid UTF-8.
constexpr size_t utf8_length(char lead) {
  const auto byte = static_cast<uint8_t>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}
constexpr bool is_utf8_continuation(char c) { return (static_cast<uint8_t>(c) & 0xC0) == 0x80; }

}  // namespace nought
