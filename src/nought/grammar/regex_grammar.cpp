#include "nought/grammar/regex_grammar.h"

#include <cctype>
#include <string>

#include "nought/base/error.h"
#include "nought/base/text.h"
#include "nought/grammar/text_cursor.h"

namespace nought {

namespace {

using Expression = Grammar::Expression;
using CodePoints = Grammar::CodePoints;

class RegexReader : TextCursor {
 public:
  RegexReader(Grammar& grammar, std::string_view pattern, bool whole, const WriteCharacters& write)
      : TextCursor(pattern), grammar_(grammar), whole_(whole), write_(write) {}

  Expression read() {
    require<ConfigError>(is_valid_utf8(text_), "the pattern is no UTF-8");
    const Expression all = alternatives(0);
    if (at_ < text_.size()) fail("a ) without its (");
    return all;
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    const std::string_view shown = text_.substr(0, valid_utf8_prefix(text_.substr(0, 80)));
    throw ConfigError(fmt::format("the pattern has {} at byte {}: {}", what, at_, one_line(shown)));
  }

  Expression alternatives(int depth) {
    if (depth > kMostGroups) fail("too many groups within each other");
    std::vector<Expression> all;
    do all.push_back(sequence(depth));
    while (skip("|"));
    return all.size() == 1 ? all[0] : grammar_.choice(std::move(all));
  }
  Expression sequence(int depth) {
    std::vector<Expression> parts;
    const Expression any = grammar_.repeat(write_({{0, kLastCodePoint}}), 0);
    const bool top = depth == 0 && !whole_;
    const bool begins = depth == 0 && skip("^");
    if (top && !begins) parts.push_back(any);
    bool ends = false;
    while (more() && peek() != '|' && peek() != ')') {
      if (depth == 0 && peek() == '$' && (at_ + 1 == text_.size() || text_[at_ + 1] == '|')) {
        ends = skip("$");
        break;
      }
      parts.push_back(counted(depth));
    }
    if (top && !ends) parts.push_back(any);
    return grammar_.sequence(std::move(parts));
  }
  Expression counted(int depth) {
    Expression each = atom(depth);
    for (;;) {
      int64_t least = 0, most = -1;
      if (skip("*")) {
      } else if (skip("+")) {
        least = 1;
      } else if (skip("?")) {
        most = 1;
      } else if (peek() == '{') {
        ++at_;
        least = number();
        most = skip(",") ? (peek() == '}' ? -1 : number()) : least;
        if (!skip("}") || (most >= 0 && most < least)) fail("a count that is malformed");
      } else {
        return each;
      }
      skip("?");
      each = grammar_.repeat(each, least, most);
    }
  }
  int64_t number() {
    const std::optional<int64_t> value = count();
    if (!value) fail(fmt::format("no count from 0 to {}", kMostCounts));
    return *value;
  }
  Expression atom(int depth) {
    if (skip("(")) {
      if (!skip("?:") && peek() == '?') fail("a kind of group that is not supported");
      const Expression inner = alternatives(depth + 1);
      if (!skip(")")) fail("no ) for a (");
      return inner;
    }
    if (skip("[")) return write_(set());
    if (skip(".")) return write_(complement({{'\n', '\n'}, {'\r', '\r'}}));
    if (peek() == '\\') return write_(escaped());
    if (sees("*+?{^$")) fail("a character out of place");
    const char32_t code_point = take();
    return write_({{code_point, code_point}});
  }
  CodePoints set() {
    CodePoints ranges;
    const bool negated = skip("^");
    for (bool first = true; first || peek() != ']'; first = false) {
      if (!more()) fail("no ] for a [");
      if (first && peek() == ']') break;
      CodePoints item = peek() == '\\' ? escaped() : single(take());
      const bool range = peek() == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']';
      if (range && item.size() == 1 && item[0].first == item[0].second) {
        ++at_;
        const CodePoints last = peek() == '\\' ? escaped() : single(take());
        if (last.size() != 1 || last[0].first != last[0].second || last[0].first < item[0].first)
          fail("a range that is malformed");
        item[0].second = last[0].first;
      }
      ranges.insert(ranges.end(), item.begin(), item.end());
    }
    skip("]");
    return negated ? complement(std::move(ranges)) : ranges;
  }
  static CodePoints single(char32_t code_point) { return {{code_point, code_point}}; }
  CodePoints numbered(int digits) {
    const std::optional<char32_t> value = hexadecimal(digits);
    if (!value) fail("an escape that is malformed");
    return single(*value);
  }
  CodePoints escaped() {
    ++at_;
    if (!more()) fail("an escape of nothing");
    static const CodePoints kDigits{{'0', '9'}}, kWords{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}},
        kSpaces{{'\t', '\r'}, {' ', ' '}, {0xA0, 0xA0}, {0x2028, 0x2029}, {0xFEFF, 0xFEFF}};
    const char32_t code_point = take();
    switch (code_point) {
      case 'd':
        return kDigits;
      case 'D':
        return complement(kDigits);
      case 'w':
        return kWords;
      case 'W':
        return complement(kWords);
      case 's':
        return kSpaces;
      case 'S':
        return complement(kSpaces);
      case 'n':
        return single('\n');
      case 'r':
        return single('\r');
      case 't':
        return single('\t');
      case 'f':
        return single('\f');
      case 'v':
        return single('\v');
      case 'x':
        return numbered(2);
      case 'u':
        return numbered(4);
      default:
        if (code_point < 0x80 && std::isalnum(static_cast<int>(code_point))) {
          at_ -= 2;
          fail("an escape that is not supported");
        }
        return single(code_point);
    }
  }

  Grammar& grammar_;
  bool whole_;
  const WriteCharacters& write_;
};

}  // namespace

Grammar::Expression regex_expression(Grammar& grammar, std::string_view pattern, bool whole,
                                     const WriteCharacters& write) {
  return RegexReader(grammar, pattern, whole, write).read();
}

}  // namespace nought
