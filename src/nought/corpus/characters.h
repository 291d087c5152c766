// Characters of a text as the filters of web text count them: code points, their classes, lines and words by spaces.
//
// Text is valid UTF-8 throughout. ASCII is answered from a table, all else from Unicode's properties.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace nought {

/// One character: its code point and its length in bytes.
struct Character {
  char32_t code = 0;
  size_t length = 0;
};
/// The character at the start, or at the end, of non-empty text.
Character first_character(std::string_view text);
Character last_character(std::string_view text);

/// The number of code points.
size_t count_characters(std::string_view text);
/// The number of places, without overlap, where `part` occurs.
size_t count_of(std::string_view text, std::string_view part);

inline bool is_digit(char32_t c) { return c >= '0' && c <= '9'; }
/// Unicode's letters (general category L).
bool is_letter(char32_t c);
bool is_lower_letter(char32_t c);
bool is_upper_letter(char32_t c);
/// Unicode's punctuation (general category P).
bool is_punctuation(char32_t c);
/// Pictures and other symbols (general category So).
bool is_picture(char32_t c);
/// Punctuation, ASCII's symbols and control characters: what Gopher's rules do not count as a word.
bool is_symbol(char32_t c);
/// Characters that end a sentence in some script (Unicode's Sentence_Terminal).
bool ends_sentence(char32_t c);

/// What Python's str.isspace() calls a space: Unicode's white space and the four separators of ASCII.
bool is_space(char32_t c);
/// The text without spaces at both ends, as Python's str.strip().
std::string_view strip(std::string_view text);

/// The lines, without what ends them, as Python's str.splitlines(): the separators of Unicode and ASCII end lines, too.
std::vector<std::string_view> split_lines(std::string_view text);
/// What stands between spaces, as Python's str.split().
void split_at_spaces(std::string_view text, std::vector<std::string_view>& words);

/// The text in small letters, Unicode's too.
std::string lower_text(std::string_view text);

/// The text in Unicode's normal form C.
std::string normal_form_c(std::string text);

}  // namespace nought
