#include "nought/corpus/simplify.h"

#include <cstdlib>
#include <memory>

#include <utf8proc.h>

#include "nought/base/error.h"
#include "nought/corpus/characters.h"
#include "nought/text/unicode.h"

namespace nought {

namespace {

bool is_any_digit(char32_t c) {
  return c < 0x80 ? is_digit(c) : utf8proc_category(static_cast<utf8proc_int32_t>(c)) == UTF8PROC_CATEGORY_ND;
}

/// The number of bytes of the digits at the start.
size_t digits_at(std::string_view text) {
  size_t size = 0;
  while (size < text.size()) {
    const Character c = first_character(text.substr(size));
    if (!is_any_digit(c.code)) break;
    size += c.length;
  }
  return size;
}

/// A number at the start, with a decimal separator and more digits if there are any.
size_t number_at(std::string_view text) {
  constexpr std::u32string_view kSeparators = U".,\u060c\u066b\u2396\u2397\u2398";
  const size_t whole = digits_at(text);
  if (whole == 0 || whole == text.size()) return whole;
  const Character separator = first_character(text.substr(whole));
  if (kSeparators.find(separator.code) == std::u32string_view::npos) return whole;
  const size_t fraction = digits_at(text.substr(whole + separator.length));
  return fraction == 0 ? whole : whole + separator.length + fraction;
}

/// The text, decomposed (normal form D), without marks such as accents.
std::string without_accents(const std::string& text) {
  utf8proc_uint8_t* out = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &out, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(out, &std::free);
  require<ConfigError>(size >= 0, "cannot normalise the text: {}", utf8proc_errmsg(size));
  std::string_view rest(reinterpret_cast<const char*>(out), static_cast<size_t>(size));
  std::string plain;
  while (!rest.empty()) {
    const Character c = first_character(rest);
    if (c.code < 0x80 || utf8proc_category(static_cast<utf8proc_int32_t>(c.code)) != UTF8PROC_CATEGORY_MN)
      plain += rest.substr(0, c.length);
    rest.remove_prefix(c.length);
  }
  return plain;
}

}  // namespace

std::string simplify(std::string_view text) {
  std::string simple;
  simple.reserve(text.size());
  bool ascii = true;
  const auto space = [&] {
    if (!simple.empty() && simple.back() != ' ') simple += ' ';
  };
  for (size_t at = 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if ((byte | 0x20U) >= 'a' && (byte | 0x20U) <= 'z') {
      simple += static_cast<char>(byte | 0x20U);
      ++at;
      continue;
    }
    const Character c = first_character(text.substr(at));
    if (const size_t number = number_at(text.substr(at))) {
      simple += '0';
      at += number;
      continue;
    }
    if (is_symbol(c.code) || is_space(c.code)) {
      space();
    } else {
      ascii = ascii && c.code < 0x80;
      append_utf8(simple, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c.code))));
    }
    at += c.length;
  }
  if (simple.ends_with(' ')) simple.pop_back();
  return ascii ? simple : without_accents(simple);
}

}  // namespace nought
