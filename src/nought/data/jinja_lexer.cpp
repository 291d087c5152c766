#include "nought/data/jinja_lexer.h"

#include <algorithm>
#include <array>
#include <optional>

#include "nought/base/error.h"
#include "nought/data/unicode.h"

namespace nought::jinja {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool begins_name(char c) { return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

class Lexer {
 public:
  explicit Lexer(std::string_view source) {
    // One kind of line end, and none at the very end.
    for (size_t i = 0; i < source.size(); ++i) {
      const bool pair = source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n';
      if (!pair) source_ += source[i] == '\r' ? '\n' : source[i];
    }
    if (source_.ends_with('\n')) source_.pop_back();
  }

  std::vector<Token> run() {
    while (at_ < source_.size()) {
      const size_t tag = next_tag(at_);
      if (tag == source_.size()) {
        add(Token::Kind::text, source_.substr(at_));
        break;
      }
      const char kind = source_[tag + 1], sign = sign_at(tag + 2);
      data(tag, sign, kind != '{');
      advance(tag + 2 + (sign ? 1 : 0));
      if (kind == '#') {
        comment();
      } else if (kind == '%' && raw_follows()) {
        raw();
      } else {
        add(kind == '{' ? Token::Kind::begin_output : Token::Kind::begin_block, "");
        inside(kind);
      }
    }
    add(Token::Kind::end, "");
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return std::string_view(source_).substr(at_); }
  void add(Token::Kind kind, std::string text) {
    if (kind != Token::Kind::text || !text.empty()) tokens_.push_back({kind, line_, std::move(text)});
  }
  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> message, Args&&... args) const {
    fail<ConfigError>("line {}: {}", line_, fmt::format(message, std::forward<Args>(args)...));
  }
  void advance(size_t to) {
    line_ += static_cast<int>(
        std::count(source_.begin() + static_cast<long>(at_), source_.begin() + static_cast<long>(to), '\n'));
    if (to > at_) line_starts_ = source_[to - 1] == '\n';
    at_ = to;
  }
  size_t next_tag(size_t from) const {
    for (size_t at = source_.find('{', from); at < source_.size() - 1; at = source_.find('{', at + 1))
      if (source_[at + 1] == '{' || source_[at + 1] == '%' || source_[at + 1] == '#') return at;
    return source_.size();
  }
  char sign_at(size_t at) const {
    return at < source_.size() && (source_[at] == '-' || source_[at] == '+') ? source_[at] : '\0';
  }
  size_t skip_space(size_t from) const { return from + leading_white_space(std::string_view(source_).substr(from)); }

  /// What stands before a tag. A block takes the white space before it on its line (lstrip_blocks).
  void data(size_t end, char sign, bool is_block) {
    std::string_view text = std::string_view(source_).substr(at_, end - at_);
    if (sign == '-') {
      text.remove_suffix(trailing_white_space(text));
    } else if (sign != '+' && is_block) {
      const size_t newline = text.rfind('\n'), line = newline == std::string_view::npos ? 0 : newline + 1;
      if ((line > 0 || line_starts_) && leading_white_space(text.substr(line)) == text.size() - line)
        text = text.substr(0, line);
    }
    add(Token::Kind::text, std::string(text));
    advance(end);
  }
  /// Behind the end of a tag, which may take the white space or the line end (trim_blocks) that follows.
  void behind(size_t end, char sign, bool is_block) {
    if (sign == '-') {
      end = skip_space(end);
    } else if (sign != '+' && is_block && end < source_.size() && source_[end] == '\n') {
      ++end;
    }
    advance(end);
  }
  void comment() {
    const size_t end = source_.find("#}", at_);
    if (end == std::string::npos) refuse("the comment is not closed");
    behind(end + 2, end > at_ ? sign_at(end - 1) : '\0', true);
  }

  /// Where the word ends that stands at `from`, behind white space; nothing if another stands there.
  std::optional<size_t> behind_word(size_t from, std::string_view word) const {
    const size_t begin = skip_space(from);
    if (source_.compare(begin, word.size(), word) != 0) return std::nullopt;
    return skip_space(begin + word.size());
  }
  bool raw_follows() const {
    const auto end = behind_word(at_, "raw");
    return end && (source_.compare(*end, 2, "%}") == 0 || source_.compare(*end, 3, "-%}") == 0);
  }
  void raw() {
    const size_t open = source_.find("%}", at_);
    behind(open + 2, source_[open - 1] == '-' ? '-' : '+', true);
    for (size_t tag = source_.find("{%", at_); tag != std::string::npos; tag = source_.find("{%", tag + 1)) {
      const char sign = sign_at(tag + 2);
      const auto end = behind_word(tag + 2 + (sign ? 1 : 0), "endraw");
      if (!end) continue;
      const char last = sign_at(*end);
      const size_t close = *end + (last ? 1 : 0);
      if (source_.compare(close, 2, "%}") != 0) continue;
      data(tag, sign, true);
      return behind(close + 2, last, true);
    }
    refuse("the tag \"raw\" is not closed by \"endraw\"");
  }

  /// The tokens of a tag, up to its end.
  void inside(char kind) {
    const bool is_block = kind == '%';
    const char closing[] = {is_block ? '%' : '}', '}', '\0'};
    std::string brackets;
    while (true) {
      advance(skip_space(at_));
      if (at_ == source_.size()) refuse("the tag is not closed: expected \"{}\"", closing);
      if (brackets.empty()) {
        const char sign = sign_at(at_);
        const bool signed_end = sign == '-' || (sign == '+' && is_block);
        const size_t end = at_ + (signed_end ? 1 : 0);
        if (source_.compare(end, 2, closing) == 0) {
          add(is_block ? Token::Kind::end_block : Token::Kind::end_output, "");
          return behind(end + 2, signed_end ? sign : '\0', is_block);
        }
      }
      token(brackets);
    }
  }
  void token(std::string& brackets) {
    const char first = source_[at_];
    if (begins_name(first)) {
      size_t end = at_;
      while (end < source_.size() && (begins_name(source_[end]) || is_digit(source_[end]))) ++end;
      take(Token::Kind::name, end);
    } else if (is_digit(first)) {
      number();
    } else if (first == '"' || first == '\'') {
      string(first);
    } else {
      static constexpr std::array<std::string_view, 26> kSigns{"**", "//", "==", "!=", "<=", ">=", "+", "-", "*",
                                                               "/",  "%",  "~",  "<",  ">",  "=",  "(", ")", "[",
                                                               "]",  "{",  "}",  ".",  ":",  "|",  ",", ";"};
      const auto sign =
          std::find_if(kSigns.begin(), kSigns.end(), [&](std::string_view each) { return rest().starts_with(each); });
      if (sign == kSigns.end()) refuse("\"{}\" is no part of an expression", source_.substr(at_, utf8_length(first)));
      balance(first, brackets);
      take(Token::Kind::sign, at_ + sign->size());
    }
  }
  void balance(char c, std::string& brackets) const {
    if (c == '(' || c == '[' || c == '{') brackets += c == '(' ? ')' : c == '[' ? ']' : '}';
    if (c != ')' && c != ']' && c != '}') return;
    if (brackets.empty() || brackets.back() != c) refuse("\"{}\" closes nothing", c);
    brackets.pop_back();
  }
  void take(Token::Kind kind, size_t end) {
    add(kind, source_.substr(at_, end - at_));
    advance(end);
  }
  void number() {
    const auto digits = [&](size_t at) {
      while (at < source_.size() && (is_digit(source_[at]) || source_[at] == '_')) ++at;
      return at;
    };
    const auto digit_at = [&](size_t at) { return at < source_.size() && is_digit(source_[at]); };
    const bool behind_point = at_ > 0 && source_[at_ - 1] == '.';
    size_t end = digits(at_);
    bool real = false;
    if (!behind_point && end < source_.size() && source_[end] == '.' && digit_at(end + 1)) {
      real = true, end = digits(end + 1);
    }
    if (!behind_point && end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      const size_t power = end + 1 + (sign_at(end + 1) ? 1 : 0);
      if (digit_at(power)) real = true, end = digits(power);
    }
    std::string text = source_.substr(at_, end - at_);
    std::erase(text, '_');
    add(real ? Token::Kind::real : Token::Kind::integer, text);
    advance(end);
  }
  void string(char quote) {
    std::string text;
    size_t i = at_ + 1;
    while (i < source_.size() && source_[i] != quote) {
      if (source_[i] != '\\') {
        text += source_[i++];
        continue;
      }
      if (i + 1 >= source_.size()) break;
      i = escape(i + 1, text);
    }
    if (i >= source_.size()) refuse("the string is not closed");
    add(Token::Kind::string, std::move(text));
    advance(i + 1);
  }
  /// Appends what the characters behind a backslash mean. Returns where they end.
  size_t escape(size_t at, std::string& text) const {
    static constexpr std::string_view kLetters = "ntr\\'\"abfv", kMeanings = "\n\t\r\\'\"\a\b\f\v";
    const char c = source_[at];
    if (const size_t found = kLetters.find(c); found != std::string_view::npos) {
      text += kMeanings[found];
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      const std::string hex = source_.substr(at + 1, digits);
      const bool valid = hex.size() == digits && hex.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos;
      const uint64_t code = valid ? std::stoull(hex, nullptr, 16) : 0x110000;
      if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) refuse("\"\\{}{}\" is no character", c, hex);
      append_utf8(text, static_cast<char32_t>(code));
      return at + 1 + digits;
    } else if (c >= '0' && c <= '7') {
      char32_t code = 0;
      size_t end = at;
      while (end < std::min(at + 3, source_.size()) && source_[end] >= '0' && source_[end] <= '7')
        code = code * 8 + static_cast<char32_t>(source_[end++] - '0');
      append_utf8(text, code);
      return end;
    } else if (c != '\n') {  // a backslash that means nothing stays
      text += '\\';
      text += c;
    }
    return at + 1;
  }

  std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starts_ = true;  // whether the last token ended with a line
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> lex(std::string_view source) { return Lexer(source).run(); }

}  // namespace nought::jinja
