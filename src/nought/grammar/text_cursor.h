// TextCursor: reads the notation of a grammar from its beginning to its end: what regular expressions and GBNF share.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "nought/text/unicode.h"

namespace nought {

/// The largest count of repetitions, and the most groups within each other, that are read.
inline constexpr int64_t kMostCounts = 10000;
inline constexpr int kMostGroups = 100;

class TextCursor {
 public:
  /// text: valid UTF-8, which must outlive the cursor.
  explicit TextCursor(std::string_view text) : text_(text) {}

  std::string_view rest() const { return text_.substr(at_); }
  bool more() const { return at_ < text_.size(); }
  /// The next byte; '\0' at the end.
  char peek() const { return more() ? text_[at_] : '\0'; }
  /// Whether one of these bytes comes next.
  bool sees(std::string_view bytes) const { return more() && bytes.find(peek()) != std::string_view::npos; }
  /// Passes over a text if it comes next.
  bool skip(std::string_view text) {
    if (!rest().starts_with(text)) return false;
    at_ += text.size();
    return true;
  }
  /// The next character; there must be one.
  char32_t take() {
    const char32_t code_point = first_code_point(rest());
    at_ += utf8_length(peek());
    return code_point;
  }
  /// A decimal number up to kMostCounts. nullopt if there is no digit, or a larger number.
  std::optional<int64_t> count() {
    const size_t begin = at_;
    int64_t value = 0;
    for (; sees("0123456789") && value <= kMostCounts; ++at_) value = value * 10 + (peek() - '0');
    if (at_ == begin || value > kMostCounts) return std::nullopt;
    return value;
  }
  /// A number of so many hexadecimal digits. nullopt, in front of what is none, if there are fewer.
  std::optional<char32_t> hexadecimal(int digits) {
    char32_t value = 0;
    for (int i = 0; i < digits; ++i, ++at_) {
      if (!sees("0123456789abcdefABCDEF")) return std::nullopt;
      const char each = peek();
      value = value * 16 + static_cast<char32_t>(each <= '9' ? each - '0' : (each | 0x20) - 'a' + 10);
    }
    return value;
  }

 protected:
  std::string_view text_;
  size_t at_ = 0;  // the byte that comes next
};

}  // namespace nought
