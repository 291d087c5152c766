// UTF-8: validity, code points and white space.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace nought {

/// The number of bytes of the longest prefix that is valid UTF-8.
size_t valid_utf8_prefix(std::string_view text);
inline bool is_valid_utf8(std::string_view text) { return valid_utf8_prefix(text) == text.size(); }
/// The number of bytes of the character whose first byte is `lead`, in valid UTF-8.
constexpr size_t utf8_length(char lead) {
  const auto byte = static_cast<uint8_t>(lead);
  return byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}
/// The character at the start of valid, non-empty UTF-8.
char32_t first_code_point(std::string_view text);
void append_utf8(std::string& text, char32_t code_point);
/// The number of bytes at the end of `text` that are an incomplete character.
size_t incomplete_utf8_tail(std::string_view text);

/// Unicode's White_Space property, which \s means in Rust, Python and Oniguruma.
constexpr bool is_white_space(char32_t c) {
  return (c >= 0x9 && c <= 0xD) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
         c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}
/// The number of bytes of white space at the start, and at the end, of valid UTF-8.
size_t leading_white_space(std::string_view text);
size_t trailing_white_space(std::string_view text);
/// The text without the white space at both ends.
std::string_view trim(std::string_view text);

void replace_all(std::string& text, std::string_view from, std::string_view to);

}  // namespace nought
