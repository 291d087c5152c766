// UTF-8: code points and white space.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "nought/base/utf8.h"

namespace nought {

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
