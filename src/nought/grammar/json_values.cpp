#include "nought/grammar/json_values.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "nought/text/unicode.h"

namespace nought {

namespace {

using Expression = Grammar::Expression;

constexpr int64_t kMostSpaces = 20, kMostDigits = 18;
constexpr int64_t kLargest = 999'999'999'999'999'999;  // of kMostDigits

/// What two ranges have in common.
void append_common(const Grammar::CodePoints& ranges, char32_t first, char32_t last, Grammar::CodePoints& common) {
  for (const auto& [from, to] : ranges)
    if (from <= last && to >= first) common.emplace_back(std::max(from, first), std::min(to, last));
}

}  // namespace

JsonValues::JsonValues(Grammar& grammar) : grammar_(grammar) {
  const Expression indent = grammar.repeat(grammar.choice({grammar.text(" "), grammar.text("\t")}), 0, kMostSpaces);
  space_ = grammar.optional(grammar.choice({grammar.text(" "), grammar.sequence({grammar.text("\n"), indent})}));
  comma_ = grammar.sequence({grammar.text(","), space_});
  const auto hex = [&] {
    return grammar.choice({grammar.bytes('0', '9'), grammar.bytes('A', 'F'), grammar.bytes('a', 'f')});
  };
  const auto hexes = [&](int64_t count) { return grammar.repeat(hex(), count, count); };
  std::vector<Expression> escapes;
  for (const char each : std::string_view("\"\\/bfnrt")) escapes.push_back(grammar.text(std::string_view(&each, 1)));
  // Surrogates are left out: half of a pair is no character.
  const Expression d =
      grammar.sequence({grammar.choice({grammar.text("D"), grammar.text("d")}), grammar.bytes('0', '7'), hexes(2)});
  const Expression not_d =
      grammar.sequence({grammar.choice({grammar.bytes('0', '9'), grammar.bytes('A', 'C'), grammar.bytes('E', 'F'),
                                        grammar.bytes('a', 'c'), grammar.bytes('e', 'f')}),
                        hexes(3)});
  escapes.push_back(grammar.sequence({grammar.text("u"), grammar.choice({d, not_d})}));
  character_ = grammar.choice({grammar.characters({{0x20, 0x21}, {0x23, 0x5B}, {0x5D, kLastCodePoint}}),
                               grammar.sequence({grammar.text("\\"), grammar.choice(std::move(escapes))})});
  const Grammar::Rule string = grammar.declare(), any = grammar.declare(), object = grammar.declare();
  grammar.define(string, quoted(grammar.repeat(character_, 0)));
  string_ = grammar.call(string);
  any_ = grammar.call(any);
  object_ = grammar.call(object);
  const auto list = [&](Expression each) {
    return grammar.optional(grammar.sequence({each, grammar.repeat(grammar.sequence({comma_, each}), 0)}));
  };
  grammar.define(object, enclosed('{', list(member(string_, any_)), '}'));
  grammar.define(any, grammar.choice({object_, enclosed('[', list(any_), ']'), string_, number(), grammar.text("true"),
                                      grammar.text("false"), grammar.text("null")}));
}

Expression JsonValues::characters(const Grammar::CodePoints& ranges) const {
  Grammar::CodePoints plain, control;
  for (const auto& [first, last] : {std::pair<char32_t, char32_t>{0x20, 0x21}, {0x23, 0x5B}, {0x5D, kLastCodePoint}})
    append_common(ranges, first, last, plain);
  std::vector<Expression> ways{grammar_.characters(plain)};
  append_common(ranges, 0, 0x1F, control);
  append_common(ranges, '"', '"', control);
  append_common(ranges, '\\', '\\', control);
  static const std::map<char32_t, const char*> kEscapes{{'"', "\\\""}, {'\\', "\\\\"}, {'\b', "\\b"}, {'\f', "\\f"},
                                                        {'\n', "\\n"}, {'\r', "\\r"},  {'\t', "\\t"}};
  for (const auto& [first, last] : control)
    for (char32_t each = first; each <= last; ++each) {
      const auto found = kEscapes.find(each);
      ways.push_back(grammar_.text(found == kEscapes.end() ? fmt::format("\\u{:04x}", static_cast<uint32_t>(each))
                                                           : std::string(found->second)));
    }
  return grammar_.choice(std::move(ways));
}

Expression JsonValues::quoted(Expression inner) const {
  return grammar_.sequence({grammar_.text("\""), inner, grammar_.text("\"")});
}

Expression JsonValues::other_rest(const std::vector<std::string>& names, size_t at) const {
  // All names have the same first `at` bytes, which have been written.
  std::map<char32_t, std::vector<std::string>> by_next;
  bool ends = true;
  for (const std::string& name : names) {
    if (name.size() == at)
      ends = false;
    else
      by_next[first_code_point(std::string_view(name).substr(at))].push_back(name);
  }
  const Expression plain = grammar_.characters({{0x20, 0x21}, {0x23, 0x5B}, {0x5D, kLastCodePoint}});
  Grammar::CodePoints others;
  char32_t from = 0x20;
  std::vector<Expression> ways;
  if (ends) ways.push_back(grammar_.sequence({}));
  for (const auto& [next, rest] : by_next) {
    if (next < 0x20 || next == '"' || next == '\\') continue;  // the name needs an escape
    if (next > from) others.emplace_back(from, next - 1);
    from = next + 1;
    std::string written;
    append_utf8(written, next);
    ways.push_back(grammar_.sequence({grammar_.text(written), other_rest(rest, at + written.size())}));
  }
  others.emplace_back(from, kLastCodePoint);
  Grammar::CodePoints allowed;
  for (const auto& [first, last] : {std::pair<char32_t, char32_t>{0x20, 0x21}, {0x23, 0x5B}, {0x5D, kLastCodePoint}})
    append_common(others, first, last, allowed);
  ways.push_back(grammar_.sequence({grammar_.characters(allowed), grammar_.repeat(plain, 0)}));
  return grammar_.choice(std::move(ways));
}

Expression JsonValues::other_string(const std::vector<std::string>& names) const {
  return quoted(other_rest(names, 0));
}

Expression JsonValues::natural(int64_t least, int64_t most) const {
  std::vector<Expression> ways;
  int64_t first = least;
  for (int64_t ten = 10; first <= most; ten = ten > kLargest / 10 ? kLargest + 1 : ten * 10) {
    if (first >= ten) continue;
    const int64_t last = std::min(most, ten - 1);
    ways.push_back(grammar_.between(std::to_string(first), std::to_string(last), '0', '9'));
    first = last + 1;
  }
  return grammar_.choice(std::move(ways));
}

Expression JsonValues::integer(std::optional<int64_t> least, std::optional<int64_t> most) const {
  const int64_t from = std::clamp(least.value_or(-kLargest), -kLargest, kLargest);
  const int64_t to = std::clamp(most.value_or(kLargest), -kLargest, kLargest);
  std::vector<Expression> ways;
  const bool none = (least && *least > kLargest) || (most && *most < -kLargest);
  if (to >= 0 && !none) ways.push_back(natural(std::max<int64_t>(from, 0), to));
  if (from < 0 && !none)
    ways.push_back(grammar_.sequence({grammar_.text("-"), natural(std::max<int64_t>(-to, 1), -from)}));
  return grammar_.choice(std::move(ways));
}

Expression JsonValues::number() const {
  const Expression digit = grammar_.bytes('0', '9');
  const Expression sign = grammar_.optional(grammar_.choice({grammar_.text("+"), grammar_.text("-")}));
  const Expression exponent = grammar_.sequence(
      {grammar_.choice({grammar_.text("e"), grammar_.text("E")}), sign, grammar_.repeat(digit, 1, 2)});
  return grammar_.sequence(
      {grammar_.optional(grammar_.text("-")),
       grammar_.choice({grammar_.text("0"),
                        grammar_.sequence({grammar_.bytes('1', '9'), grammar_.repeat(digit, 0, kMostDigits - 1)})}),
       grammar_.optional(grammar_.sequence({grammar_.text("."), grammar_.repeat(digit, 1, kMostDigits)})),
       grammar_.optional(exponent)});
}

Expression JsonValues::enclosed(char begin, Expression inner, char end) const {
  return grammar_.sequence(
      {grammar_.text(std::string_view(&begin, 1)), space_, inner, space_, grammar_.text(std::string_view(&end, 1))});
}

Expression JsonValues::member(Expression key, Expression value) const {
  return grammar_.sequence({key, grammar_.text(":"), space_, value});
}

}  // namespace nought
