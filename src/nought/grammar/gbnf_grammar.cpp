#include "nought/grammar/gbnf_grammar.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "nought/base/error.h"
#include "nought/grammar/text_cursor.h"

namespace nought {

namespace {

using Expression = Grammar::Expression;
using CodePoints = Grammar::CodePoints;

bool is_of_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

class GbnfReader : TextCursor {
 public:
  GbnfReader(Grammar& grammar, std::string_view text) : TextCursor(text), grammar_(grammar) {}

  Expression read() {
    require<ConfigError>(is_valid_utf8(text_), "the grammar is no UTF-8");
    for (skip_space(true); more(); skip_space(true)) rule();
    for (const auto& [name, each] : rules_) {
      if (each.defined) continue;
      in_ = each.used_in;
      fail(fmt::format("the rule \"{}\" is not defined", name), each.at);
    }
    const auto root = rules_.find("root");
    require<ConfigError>(root != rules_.end(), "the grammar has no rule \"root\", with which answers begin");
    return grammar_.call(root->second.rule);
  }

 private:
  struct Named {
    Grammar::Rule rule;
    bool defined = false;
    size_t at = 0;  // where it is first used
    std::string used_in = {};
  };

  /// How messages name a place: the rule, its line and column. Places mostly come in order, so that counting goes on
  /// from the one before.
  std::string place(size_t at) const {
    if (at < counted_.at) counted_ = {};
    for (; counted_.at < at; ++counted_.at) {
      const char each = text_[counted_.at];
      if (each == '\n') {
        ++counted_.line;
        counted_.column = 1;
      } else if ((each & 0xC0) != 0x80) {
        ++counted_.column;
      }
    }
    return fmt::format("{}line {}, column {}", in_.empty() ? "" : fmt::format("rule \"{}\", ", in_), counted_.line,
                       counted_.column);
  }
  [[noreturn]] void fail(const std::string& what, size_t at) const { throw ConfigError(place(at) + ": " + what); }
  [[noreturn]] void fail(const std::string& what) const { fail(what, at_); }

  void skip_space(bool breaks) {
    for (;; ++at_) {
      if (peek() == '#') at_ = std::min(text_.find_first_of("\r\n", at_), text_.size());
      const char each = peek();
      if (!more() || !(each == ' ' || each == '\t' || (breaks && (each == '\r' || each == '\n')))) return;
    }
  }
  std::string name() {
    const size_t begin = at_;
    while (is_of_name(peek())) ++at_;
    return std::string(text_.substr(begin, at_ - begin));
  }
  /// What a character or the end is called.
  std::string found() const {
    if (!more()) return "the end";
    if (peek() == '\n' || peek() == '\r') return "the end of the line";
    return fmt::format("'{}'", text_.substr(at_, utf8_length(peek())));
  }

  void rule() {
    in_.clear();
    const size_t begin = at_;
    const std::string called = name();
    if (called.empty()) fail("expected the name of a rule, found " + found());
    in_ = called;
    skip_space(false);
    if (!skip("::=")) fail("expected ::=, found " + found());
    const auto known = rules_.find(called);
    if (known != rules_.end() && known->second.defined) fail("the rule is defined twice", begin);
    const Grammar::Rule number = rule_of(called, begin);
    rules_.at(called).defined = true;
    grammar_.define(number, alternatives(0), place(begin));
    if (more() && peek() != '\r' && peek() != '\n') fail("expected the end of the rule, found " + found());
  }
  Grammar::Rule rule_of(const std::string& name, size_t at) {
    if (const auto known = rules_.find(name); known != rules_.end()) return known->second.rule;
    return rules_.emplace(name, Named{.rule = grammar_.declare(), .at = at, .used_in = in_}).first->second.rule;
  }

  Expression alternatives(int depth) {
    if (depth > kMostGroups) fail("too many groups within each other");
    std::vector<Expression> all;
    do {
      skip_space(true);
      all.push_back(sequence(depth));
    } while (goes_on(depth));
    return all.size() == 1 ? all[0] : grammar_.choice(std::move(all));
  }
  /// Whether another alternative follows; it is behind a | that may begin a line.
  bool goes_on(int depth) {
    const size_t here = at_;
    if (depth == 0) skip_space(true);
    if (skip("|")) return true;
    at_ = here;
    return false;
  }
  Expression sequence(int depth) {
    std::vector<Expression> parts;
    while (starts_part()) {
      Expression each = part(depth);
      skip_space(depth > 0);
      while (sees("*+?{")) {
        each = counted(each);
        skip_space(depth > 0);
      }
      parts.push_back(each);
    }
    return grammar_.sequence(std::move(parts));
  }
  bool starts_part() const {
    if (sees("*+?{")) fail("a count of nothing");
    if (sees("<!")) fail("tokens are not supported: write their text in quotes");
    return is_of_name(peek()) || sees("\"[(.");
  }
  Expression part(int depth) {
    const size_t begin = at_;
    if (skip("\"")) return literal(begin);
    if (skip("[")) return characters(begin);
    if (skip(".")) return grammar_.characters({{0, kLastCodePoint}});
    if (skip("(")) {
      const Expression inner = alternatives(depth + 1);
      if (!skip(")")) fail(fmt::format("expected ) for the ( at {}, found {}", place(begin), found()));
      return inner;
    }
    return grammar_.call(rule_of(name(), begin));
  }
  Expression counted(Expression each) {
    if (skip("*")) return grammar_.repeat(each, 0);
    if (skip("+")) return grammar_.repeat(each, 1);
    if (skip("?")) return grammar_.optional(each);
    const size_t begin = at_++;
    const int64_t least = number();
    int64_t most = least;
    if (skip(",")) {
      skip_space(false);
      most = peek() == '}' ? -1 : number();
    }
    if (!skip("}")) fail("expected }, found " + found());
    if (most >= 0 && most < least) fail("the count ends before it begins", begin);
    return grammar_.repeat(each, least, most);
  }
  int64_t number() {
    skip_space(false);
    const size_t begin = at_;
    const std::optional<int64_t> value = count();
    if (!value) fail(fmt::format("expected a count from 0 to {}", kMostCounts), begin);
    skip_space(false);
    return *value;
  }

  Expression literal(size_t begin) {
    std::string text;
    while (!skip("\"")) {
      if (!more()) fail("no \" ends this literal", begin);
      append_utf8(text, character());
    }
    return grammar_.text(text);
  }
  Expression characters(size_t begin) {
    const bool negated = skip("^");
    CodePoints ranges;
    while (!skip("]")) {
      if (!more()) fail("no ] ends this class", begin);
      const size_t at = at_;
      const char32_t first = character();
      char32_t last = first;
      if (peek() == '-' && text_.substr(at_, 2) != "-]") {
        ++at_;
        if (!more()) fail("no ] ends this class", begin);
        last = character();
      }
      if (last < first) fail("the range ends before it begins", at);
      ranges.emplace_back(first, last);
    }
    if (ranges.empty()) fail("the class is empty", begin);
    return grammar_.characters(negated ? complement(std::move(ranges)) : ranges);
  }
  char32_t character() {
    const size_t begin = at_;
    if (!skip("\\")) return take();
    const char kind = peek();
    at_ += more();
    switch (kind) {
      case 'x':
        return numbered(2, begin);
      case 'u':
        return numbered(4, begin);
      case 'U':
        return numbered(8, begin);
      case 't':
        return '\t';
      case 'r':
        return '\r';
      case 'n':
        return '\n';
      default:
        if (kind == '\0' || std::string_view("\\\"[]-^").find(kind) == std::string_view::npos)
          fail("an escape that is not known", begin);
        return static_cast<char32_t>(kind);
    }
  }
  char32_t numbered(int digits, size_t begin) {
    const std::optional<char32_t> value = hexadecimal(digits);
    if (!value) fail(fmt::format("expected {} hexadecimal digits", digits), begin);
    if (*value > kLastCodePoint || (*value >= 0xD800 && *value <= 0xDFFF)) fail("no character has this number", begin);
    return *value;
  }

  Grammar& grammar_;
  std::map<std::string, Named, std::less<>> rules_;
  std::string in_;  // the rule that is read
  struct Counted {
    size_t at = 0;
    int64_t line = 1, column = 1;
  };
  mutable Counted counted_;
};

}  // namespace

Grammar::Expression gbnf_expression(Grammar& grammar, std::string_view text) {
  return GbnfReader(grammar, text).read();
}

}  // namespace nought
