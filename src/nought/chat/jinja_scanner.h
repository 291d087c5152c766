// Scanner: the words, signs and strings of a Jinja program, and the text between its tags, as jinja2 has them with
// trim_blocks and lstrip_blocks. The parser goes through the source once, without a list of tokens.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "nought/base/error.h"
#include "nought/text/unicode.h"

namespace nought::jinja {

inline bool is_in(std::string_view set, char c) { return set.find(c) != set.npos; }

/// The line of a byte of the source.
inline auto line_of(std::string_view source, size_t offset) {
  return 1 + std::count(source.begin(), source.begin() + static_cast<long>(offset), '\n');
}

class Scanner {
 public:
  explicit Scanner(std::string_view source) : all_(source), rest_(source) {}

 protected:
  size_t at() const { return all_.size() - rest_.size(); }
  void go_to(size_t offset) { rest_ = all_.substr(offset); }
  bool at_end() const { return rest_.empty(); }
  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> message, Args&&... args) const {
    fail<ConfigError>("line {}: {}", line_of(all_, at()), fmt::format(message, std::forward<Args>(args)...));
  }

  // Between tags.

  /// What stands before the next tag, without comments. A tag may take the white space before it; a block takes that of
  /// its line (lstrip_blocks).
  std::string text() {
    std::string text;
    while (!rest_.empty()) {
      const auto is_tag = [&](size_t i) {
        return rest_[i] == '{' && i + 1 < rest_.size() && is_in("{%#", rest_[i + 1]);
      };
      size_t end = 0;
      while (end < rest_.size() && !is_tag(end)) ++end;
      std::string_view piece = rest_.substr(0, end);
      const bool begins_line = at() == 0 || all_[at() - 1] == '\n';
      rest_.remove_prefix(end);
      const char sign = rest_.empty() ? '+' : sign_of(rest_.substr(2));
      if (sign == '-') piece.remove_suffix(trailing_white_space(piece));
      if (sign == '\0' && rest_[1] != '{') {
        const size_t line = piece.rfind('\n') + 1, space = leading_white_space(piece.substr(line));
        if ((line > 0 || begins_line) && line + space == piece.size()) piece = piece.substr(0, line);
      }
      text += piece;
      if (!rest_.starts_with("{#")) break;
      const size_t begin = sign ? 3 : 2, stop = rest_.find("#}", begin);
      if (stop == rest_.npos) refuse("the comment is not closed");
      rest_.remove_prefix(stop > begin && sign_of(rest_.substr(stop - 1)) ? stop - 1 : stop);
      close("#}");
    }
    return text;
  }
  /// The end of a tag, which may take the white space behind it. A block takes the line's end (trim_blocks).
  void close(std::string_view end) {
    const char sign = sign_of(rest_);
    if (!rest_.substr(sign ? 1 : 0).starts_with(end)) expect(end);
    rest_.remove_prefix(sign ? 3 : 2);
    if (sign == '-') advance(0);
    if (sign == '\0' && end != "}}" && rest_.starts_with('\n')) rest_.remove_prefix(1);
  }
  /// Takes the beginning of a tag. Whether it is "{{".
  bool open() {
    const bool is_output = rest_.starts_with("{{");
    advance(sign_of(rest_.substr(2)) ? 3 : 2);
    return is_output;
  }

  // Within a tag. White space is passed over at once, so the scanner never stands before it.

  /// Passes over so many bytes, and over white space behind them.
  void advance(size_t count) {
    rest_.remove_prefix(count);
    rest_.remove_prefix(leading_white_space(rest_));
  }
  /// The name or keyword that stands here, or "".
  std::string_view word() const {
    return rest_.empty() || is_in(kDigits, rest_[0]) ? "" : rest_.substr(0, rest_.find_first_not_of(kWord));
  }
  bool sees_end() const {
    const std::string_view end = rest_.substr(sign_of(rest_) ? 1 : 0, 2);
    return end == "%}" || end == "}}";
  }
  bool sees(std::string_view spelt) const {
    if (is_in(kWord, spelt[0])) return word() == spelt;
    return rest_.starts_with(spelt) && !(is_in("+-%", spelt[0]) && sees_end());
  }
  bool take(std::string_view spelt) {
    const bool seen = sees(spelt);
    if (seen) advance(spelt.size());
    return seen;
  }
  std::string found() const {
    if (rest_.empty() || sees_end()) return "the end";
    return fmt::format("\"{}\"", word().empty() ? rest_.substr(0, utf8_length(rest_[0])) : word());
  }
  void expect(std::string_view spelt) {
    if (rest_.empty()) refuse("the tag is not closed: expected \"{}\"", spelt);
    if (!take(spelt)) refuse("expected \"{}\", found {}", spelt, found());
  }
  std::string name() {
    const std::string name(word());
    if (name.empty()) refuse("expected a name, found {}", found());
    advance(name.size());
    return name;
  }
  /// What `one` parses, with commas between and perhaps behind the last, up to a closing bracket.
  template <class One>
  void separated(std::string_view close, One one) {
    while (!take(close)) {
      one();
      if (!sees(close)) expect(",");
    }
  }
  bool sees_number() const { return !rest_.empty() && is_in(kDigits, rest_[0]); }
  int64_t number() {
    const std::string_view digits = rest_.substr(0, rest_.find_first_not_of(kDigits));
    int64_t number = 0;
    const auto error = std::from_chars(digits.data(), digits.data() + digits.size(), number).ec;
    if (error != std::errc()) refuse("the integer {} has more than 64 bits", digits);
    rest_.remove_prefix(digits.size());
    if (rest_.starts_with('.') || !word().empty()) refuse("numbers other than integers are not supported");
    advance(0);
    return number;
  }
  bool sees_string() const { return rest_.starts_with('"') || rest_.starts_with('\''); }
  std::string string() {
    static constexpr std::string_view kNames = "ntr\\'\"", kMeanings = "\n\t\r\\'\"";
    const char quote = rest_[0];
    std::string text;
    size_t i = 1;
    for (; i < rest_.size() && rest_[i] != quote; ++i) {
      const bool escapes = rest_[i] == '\\' && i + 1 < rest_.size();
      const char c = escapes ? rest_[++i] : rest_[i];
      if (escapes && is_in("01234567abfvxuUN", c)) refuse("\"\\{}\" in a string is not supported", c);
      if (escapes && is_in(kNames, c)) {
        text += kMeanings[kNames.find(c)];
      } else if (!escapes || c != '\n') {  // a backslash that means nothing stays
        if (escapes) text += '\\';
        text += c;
      }
    }
    if (i >= rest_.size()) refuse("the string is not closed");
    advance(i + 1);
    return text;
  }

 private:
  static constexpr std::string_view kWord = "0123456789_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  static constexpr std::string_view kDigits = kWord.substr(0, 10);

  /// The sign by which a tag says what happens to the white space beside it; 0 if there is none.
  static char sign_of(std::string_view text) { return text.empty() || !is_in("-+", text[0]) ? '\0' : text[0]; }

  std::string_view all_, rest_;
};

}  // namespace nought::jinja
