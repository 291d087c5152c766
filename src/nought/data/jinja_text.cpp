#include <algorithm>
#include <cstring>

#include <utf8proc.h>

#include "nought/data/jinja_builtins.h"
#include "nought/data/unicode.h"

namespace nought::jinja {

namespace {

/// A method's text. Filters take to_text() of anything.
const Text& own_text(const Call& call) {
  require<ConfigError>(call.self.text(), "{} is no text", call.self.describe());
  return *call.self.text();
}

const std::string& string_of(const Value& value) {
  require<ConfigError>(value.text(), "expected a string, found {}", value.describe());
  return value.text()->str();
}

/// change(character, the one before it, or 0) for each character.
template <class Change>
Text changed(const Text& text, Change change) {
  Text out;
  char32_t before = 0;
  size_t at = 0;
  for (const Text::Stretch& stretch : text.stretches()) {
    std::string piece;
    for (; at < stretch.end; at += utf8_length(text.str()[at])) {
      const char32_t c = first_code_point(std::string_view(text.str()).substr(at));
      append_utf8(piece, change(c, before));
      before = c;
    }
    out.append(piece, stretch.flags);
  }
  return out;
}

char32_t lower(char32_t c) { return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))); }
char32_t upper(char32_t c) { return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))); }

Text capitalized(const Text& text) {
  return changed(text, [](char32_t c, char32_t before) { return before == 0 ? upper(c) : lower(c); });
}

/// A word begins where `begins_word` holds of the character before it.
template <class BeginsWord>
Text titled(const Text& text, BeginsWord begins_word) {
  return changed(text, [&](char32_t c, char32_t before) { return begins_word(before) ? upper(c) : lower(c); });
}

bool is_cased(char32_t c) { return c != 0 && lower(c) != upper(c); }

Text stripped(const Text& text, const Value& characters, bool left, bool right, Budget& budget) {
  const std::string_view all = text.str();
  budget.allocate(all.size());
  if (!characters.text()) {
    const size_t begin = left ? leading_white_space(all) : 0;
    return text.substr(begin,
                       right ? begin + (all.size() - begin) - trailing_white_space(all.substr(begin)) : all.size());
  }
  const Characters each(text, budget);
  const std::string& set = characters.text()->str();
  const auto is_in = [&](size_t i) {
    budget.step(1 + set.size() / 16);
    return set.find(each.at(i).str()) != std::string::npos;
  };
  size_t begin = 0, end = each.size();
  while (left && begin < end && is_in(begin)) ++begin;
  while (right && end > begin && is_in(end - 1)) --end;
  return each.cut(begin, end);
}

/// Where a part stands at or behind `from`; npos if it does not.
size_t find_part(const std::string& text, const std::string& part, size_t from) {
  const void* found = memmem(text.data() + from, text.size() - from, part.data(), part.size());
  return found ? static_cast<size_t>(static_cast<const char*>(found) - text.data()) : std::string::npos;
}

int64_t limit_of(const Value& value) {
  int64_t limit = -1;
  require<ConfigError>(to_integer(value, limit) || value.is_undefined() || value.is_none(),
                       "expected a number, found {}", value.describe());
  return limit < 0 ? INT64_MAX : limit;
}

Value split(Call& call) {
  const Text& text = own_text(call);
  call.budget.allocate(text.size());
  std::vector<Value> parts;
  const auto add = [&](size_t begin, size_t end) {
    call.budget.allocate(sizeof(Value) + sizeof(Text) + 32);
    parts.emplace_back(text.substr(begin, end));
  };
  int64_t left = limit_of(call[1]);
  size_t begin = 0;
  if (call[0].text()) {
    const std::string& by = string_of(call[0]);
    require<ConfigError>(!by.empty(), "the separator of \"split\" is empty");
    for (size_t at; left > 0 && (at = find_part(text.str(), by, begin)) != std::string::npos; --left) {
      add(begin, at);
      begin = at + by.size();
    }
    add(begin, text.size());
    return Value::list(std::move(parts));
  }
  const auto space = [&](size_t at) {  // how much stands there
    return at < text.size() && is_white_space(first_code_point(std::string_view(text.str()).substr(at)));
  };
  while (true) {
    while (space(begin)) begin += utf8_length(text.str()[begin]);
    if (begin == text.size()) return Value::list(std::move(parts));
    size_t end = begin;
    while (end < text.size() && !space(end)) end += utf8_length(text.str()[end]);
    if (left-- <= 0) end = text.size();
    add(begin, end);
    begin = end;
  }
}

Value splitlines(Call& call) {
  const Text& text = own_text(call);
  call.budget.allocate(text.size());
  std::vector<Value> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.str().find('\n', begin), text.size());
    call.budget.allocate(sizeof(Value) + sizeof(Text) + 32);
    lines.emplace_back(text.substr(begin, end));
    begin = end + 1;
  }
  return Value::list(std::move(lines));
}

/// The arguments are `old`, `new` and `count`.
Text replaced(const Text& text, const Call& call) {
  const std::string& old = string_of(call[0]);
  const Text with = to_text(call[1], call.budget);
  require<ConfigError>(!old.empty(), "\"replace\" of an empty string");
  call.budget.allocate(text.size());
  Text out;
  size_t done = 0;
  int64_t left = limit_of(call[2]);
  for (size_t at; left > 0 && (at = find_part(text.str(), old, done)) != std::string::npos; --left) {
    call.budget.allocate(with.size() + 1);
    out.append(text.substr(done, at));
    out.append(with);
    done = at + old.size();
  }
  out.append(text.substr(done, text.size()));
  return out;
}

/// Whether the text begins, or ends, with the argument or with one of its elements.
Value has_end(Call& call, bool at_front) {
  const std::string_view text = own_text(call).str();
  const auto has = [&](const Value& part) {
    return at_front ? text.starts_with(string_of(part)) : text.ends_with(string_of(part));
  };
  if (!call[0].list()) return has(call[0]);
  const auto& all = call[0].list()->items;
  return Value(std::any_of(all.begin(), all.end(), has));
}

Value find(Call& call) {
  const Text& text = own_text(call);
  const size_t at = find_part(text.str(), string_of(call[0]), 0);
  if (at == std::string::npos) return int64_t{-1};
  return static_cast<int64_t>(Characters(text, call.budget).number_of(at));
}

Text joined(const std::vector<Value>& parts, const Text& between, Budget& budget) {
  Text out;
  for (size_t i = 0; i < parts.size(); ++i) {
    budget.allocate(i > 0 ? between.size() : 0);
    if (i > 0) out.append(between);
    out.append(to_text(parts[i], budget));
  }
  return out;
}

Value join_filter(Call& call) {
  std::vector<Value> parts = elements_of(call.self, call.budget);
  if (call[1].text())
    for (Value& each : parts) each = item_of(each, call[1], call.budget);
  return joined(parts, to_text(call[0], call.budget), call.budget);
}

Value indent(Call& call) {
  Text before;
  int64_t width = 4;
  if (call[0].text()) before = *call[0].text();
  require<ConfigError>(to_integer(call[0], width) || call[0].text() || call[0].is_undefined(), "the width is {}",
                       call[0].describe());
  require<ConfigError>(width <= 1000, "the width of an indent is {}", width);
  if (!call[0].text()) before = Text(std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' '));
  const Text text = to_text(call.self, call.budget);
  Text out = call[1].truth() ? before : Text();
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.str().find('\n', begin), text.size());
    if (begin > 0) {
      call.budget.allocate(before.size());
      out.append("\n", 0);
      if (end > begin || call[2].truth()) out.append(before);
    }
    out.append(text.substr(begin, end));
    begin = end + 1;
  }
  return out;
}

Value format(Call& call) {
  return binary("%", to_text(call.self, call.budget), Value::list(call.positional, true), call.budget);
}

template <Text (*change)(const Text&)>
Value method(Call& call) {
  call.budget.allocate(own_text(call).size());
  return change(own_text(call));
}
template <Text (*change)(const Text&)>
Value filter(Call& call) {
  return change(to_text(call.self, call.budget));
}
template <bool left, bool right>
Value strip(Call& call) {
  return stripped(own_text(call), call[0], left, right, call.budget);
}
Text title_of(const Text& text) {
  return titled(text, [](char32_t before) { return !is_cased(before); });
}
Text title_of_filter(const Text& text) {
  return titled(text, [](char32_t before) {
    return before == 0 || is_white_space(before) || (before < 0x80 && std::strchr("-({[<", static_cast<int>(before)));
  });
}

constexpr Builtin kTextMethods[] = {
    {"capitalize", "", method<capitalized>},
    {"endswith", "suffix", [](Call& call) { return has_end(call, false); }},
    {"find", "sub", find},
    {"join", "iterable",
     [](Call& call) { return Value(joined(elements_of(call[0], call.budget), own_text(call), call.budget)); }},
    {"lower", "", method<lower_of>},
    {"lstrip", "chars", strip<true, false>},
    {"replace", "old new count", [](Call& call) { return Value(replaced(own_text(call), call)); }},
    {"rstrip", "chars", strip<false, true>},
    {"split", "sep maxsplit", split},
    {"splitlines", "", splitlines},
    {"startswith", "prefix", [](Call& call) { return has_end(call, true); }},
    {"strip", "chars", strip<true, true>},
    {"title", "", method<title_of>},
    {"upper", "", method<upper_of>}};

constexpr Builtin kTextFilters[] = {
    {"capitalize", "", filter<capitalized>},
    {"format", "*", format},
    {"indent", "width first blank", indent},
    {"join", "d attribute", join_filter},
    {"lower", "", filter<lower_of>},
    {"replace", "old new count", [](Call& call) { return Value(replaced(to_text(call.self, call.budget), call)); }},
    {"title", "", filter<title_of_filter>},
    {"trim", "chars",
     [](Call& call) { return Value(stripped(to_text(call.self, call.budget), call[0], true, true, call.budget)); }},
    {"upper", "", filter<upper_of>}};

}  // namespace

Text lower_of(const Text& text) {
  return changed(text, [](char32_t c, char32_t) { return lower(c); });
}
Text upper_of(const Text& text) {
  return changed(text, [](char32_t c, char32_t) { return upper(c); });
}

Builtins text_methods() { return kTextMethods; }
Builtins text_filters() { return kTextFilters; }

}  // namespace nought::jinja
