#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <span>

#include <utf8proc.h>

#include "nought/base/text.h"
#include "nought/data/jinja_machine.h"
#include "nought/data/unicode.h"

namespace nought::jinja {

namespace {

// What arguments are.

int64_t integer_of(const Value& value, std::optional<int64_t> otherwise = {}) {
  const auto integer = value.is_undefined() || value.is_none() ? otherwise : to_integer(value);
  require<ConfigError>(integer.has_value(), "expected an integer, found {}", value.describe());
  return *integer;
}

const std::string& string_of(const Value& value) {
  require<ConfigError>(value.text() && !value.text()->empty(), "expected a string, found {}", value.describe());
  return value.text()->str();
}

// Functions.

Value raise(Call& call) { throw Refusal(to_text(call[0], call.budget).str()); }

Value strftime_now(Call& call) {
  const std::string format = to_text(call[0], call.budget).str();
  require<ConfigError>(format.size() <= 100, "the format of a time has {} bytes", format.size());
  char buffer[256];
  return Text(std::string_view(buffer, std::strftime(buffer, sizeof buffer, format.c_str(), &call.machine.now)));
}

Value range(Call& call) {
  const bool has_begin = !call[1].is_undefined();
  const int64_t first = has_begin ? integer_of(call[0]) : 0, last = integer_of(call[has_begin ? 1 : 0]);
  const int64_t step = integer_of(call[2], 1);
  require<ConfigError>(step != 0, "the step of a range is 0");
  std::vector<Value> items;
  for (int64_t i = first; step > 0 ? i < last : i > last;) {
    call.budget.allocate(sizeof(Value));
    items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return Value::list(std::move(items));
}

// Lists and mappings.

Value items(Call& call) {
  std::vector<Value> pairs;
  if (call.self.is_undefined()) return Value::list({});
  require<ConfigError>(call.self.map(), "{} has no items", call.self.describe());
  for (const auto& [key, value] : call.self.map()->items) pairs.push_back(Value::list({Value(key), value}, true));
  return Value::list(std::move(pairs));
}

Value values(Call& call) {
  std::vector<Value> all;
  for (const auto& [key, value] : call.self.map()->items) all.push_back(value);
  return Value::list(std::move(all));
}

Value get(Call& call) {
  const Value* found = call[0].text() ? call.self.map()->find(call[0].text()->str()) : nullptr;
  return found ? *found : call[1].is_undefined() ? Value(Value::None()) : call[1];
}

Value length(Call& call) {
  if (call.self.map()) return static_cast<int64_t>(call.self.map()->items.size());
  return static_cast<int64_t>(elements_of(call.self, call.budget).size());
}

Value end_of(Call& call, int64_t index) {
  return item_of(Value::list(elements_of(call.self, call.budget)), index, call.budget);
}

Value reverse(Call& call) {
  const Value all = call.self.text() ? call.self : Value::list(elements_of(call.self, call.budget));
  return slice_of(all, {}, {}, int64_t{-1}, call.budget);
}

Value fallback(Call& call) {
  const bool is_missing = call.self.is_undefined() || (call[1].truth() && !call.self.truth());
  return !is_missing ? call.self : call[0].is_undefined() ? Value(Text()) : call[0];
}

Value to_int(Call& call) {
  if (const auto real = to_real(call.self); real && std::abs(*real) < 9e18)
    return to_integer(call.self).value_or(static_cast<int64_t>(*real));
  const std::string_view text = call.self.text() ? trim(call.self.text()->str()) : "";
  const auto reads = [&](auto& number) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return error == std::errc() && end == text.data() + text.size();
  };
  int64_t integer = 0;
  double real = 0;
  if (reads(integer)) return integer;
  if (reads(real) && std::abs(real) < 9e18) return static_cast<int64_t>(real);
  return call[0].is_undefined() ? Value(int64_t{0}) : call[0];
}

Value tojson(Call& call) {
  std::optional<int> indent;
  if (!call[1].is_none() && !call[1].is_undefined())
    indent = static_cast<int>(std::clamp<int64_t>(integer_of(call[1]), 0, 100));
  const std::string separators = to_text(call[2], call.budget).str();
  const bool compact = separators == "(',', ':')" && !indent;
  require<ConfigError>(compact || separators.empty() || separators == "None", "the separators {} are not supported",
                       separators);
  return to_json(call.self, indent, call[0].truth(), compact, call.budget);
}

/// What a filter looks at in each element: an attribute "a.b.0", or the element if there is none.
Value looked_up(Value value, const Value& path, Budget& budget) {
  if (!path.text()) return path.is_undefined() ? value : item_of(value, path, budget);
  for (const std::string& part : nought::split(path.text()->str(), '.')) {
    const bool is_number = !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == part.npos;
    value = item_of(value, is_number ? Value(int64_t{std::stoi(part)}) : Value(Text(part)), budget);
  }
  return value;
}

Text lower_of(const Text& text);

/// In the order of what is found at a path in each. The order of equals stays.
Value sorted(const std::vector<Value>& all, const Value& path, bool case_sensitive, bool reversed, Budget& budget) {
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& each : all) {
    const Value key = looked_up(each, path, budget);
    keyed.emplace_back(key.text() && !case_sensitive ? Value(lower_of(*key.text())) : key, each);
  }
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return compares("<", reversed ? b.first : a.first, reversed ? a.first : b.first, budget);
  });
  std::vector<Value> values;
  for (auto& [key, value] : keyed) values.push_back(std::move(value));
  return Value::list(std::move(values));
}

Value sort(Call& call) {
  return sorted(elements_of(call.self, call.budget), call[2], call[1].truth(), call[0].truth(), call.budget);
}

Value dictsort(Call& call) {
  return sorted(items(call).list()->items, int64_t{0}, call[0].truth(), false, call.budget);
}

/// Calls the filter or test that the first of `names` names with the others, on a value.
Value apply(Role role, const Value& value, std::span<const Value> names, const Call& call) {
  const std::string& name = string_of(names[0]);
  const Builtin* builtin = find_builtin(role, name);
  if (!builtin) fail<ConfigError>("{}", not_supported(role, name));
  return run_builtin(*builtin, call.machine, value, {{names.begin() + 1, names.end()}});
}

Value map(Call& call) {
  std::vector<Value> made;
  Value* attribute = find(call.given.named, "attribute");
  const Value* otherwise = find(call.given.named, "default");
  require<ConfigError>(!attribute == !call.given.positional.empty(), "\"map\" takes a filter, or attribute=");
  for (const Value& each : elements_of(call.self, call.budget)) {
    Value value =
        attribute ? looked_up(each, *attribute, call.budget) : apply(kFilter, each, call.given.positional, call);
    made.push_back(value.is_undefined() && otherwise ? *otherwise : std::move(value));
  }
  return Value::list(std::move(made));
}

template <bool wanted, bool by_attribute>
Value chosen(Call& call) {
  const std::span<const Value> given(call.given.positional);
  require<ConfigError>(!by_attribute || !given.empty(), "\"selectattr\" and \"rejectattr\" take an attribute");
  const auto test = given.subspan(by_attribute ? 1 : 0);
  std::vector<Value> kept;
  for (const Value& each : elements_of(call.self, call.budget)) {
    const Value seen = by_attribute ? looked_up(each, given[0], call.budget) : each;
    const bool holds = (test.empty() ? seen : apply(kTest, seen, test, call)).truth();
    if (holds == wanted) kept.push_back(each);
  }
  return Value::list(std::move(kept));
}

// Texts. As a filter, a method takes the text of anything.

Text text_of(const Call& call) { return to_text(call.self, call.budget); }

char32_t lower(char32_t c) { return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))); }
char32_t upper(char32_t c) { return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))); }

/// change(character, the one before it, or 0) in place of each character.
template <class Change>
Text changed(const Text& text, Change change) {
  Text out;
  char32_t before = 0;
  for (size_t at = 0; at < text.size(); at += utf8_length(text.str()[at])) {
    const char32_t c = first_code_point(std::string_view(text.str()).substr(at));
    std::string character;
    append_utf8(character, change(c, before));
    out.append(character, text.flags(at));
    before = c;
  }
  return out;
}

Text lower_of(const Text& text) {
  return changed(text, [](char32_t c, char32_t) { return lower(c); });
}

/// Capital letters where a word begins, which `begins` tells from the character before.
template <class Begins>
Text capitalized(const Text& text, Begins begins) {
  return changed(text, [&](char32_t c, char32_t before) { return begins(before) ? upper(c) : lower(c); });
}

template <bool left, bool right>
Value strip(Call& call) {
  const Text text = text_of(call);
  const std::string_view all = text.str();
  const Value set = call[0];
  const auto goes = [&](size_t at) {
    const std::string_view character = all.substr(at, utf8_length(all[at]));
    call.budget.step(set.text() ? 1 + set.text()->size() / 16 : 0);
    return set.text() ? set.text()->str().find(character) != all.npos : is_white_space(first_code_point(character));
  };
  size_t begin = 0, end = all.size();
  while (left && begin < end && goes(begin)) begin += utf8_length(all[begin]);
  for (size_t last = end; right && begin < end; end = last) {
    while ((all[--last] & 0xC0) == 0x80) continue;  // within a character
    if (!goes(last)) break;
  }
  return text.substr(begin, end);
}

Value split(Call& call) {
  const Text& text = *call.self.text();
  const std::string_view all = text.str();
  const Value by = call[0];
  std::vector<Value> parts;
  size_t begin = by.text() ? 0 : leading_white_space(all);
  for (int64_t left = integer_of(call[1], -1); by.text() || begin < all.size(); --left) {
    size_t end = left == 0 ? all.size() : by.text() ? find_part(all, string_of(by), begin) : begin;
    while (!by.text() && end < all.size() && !is_white_space(first_code_point(all.substr(end))))
      end += utf8_length(all[end]);
    call.budget.allocate(sizeof(Value) + sizeof(Text));
    parts.emplace_back(text.substr(begin, end));
    if (end == all.size()) break;
    begin = end + (by.text() ? by.text()->size() : leading_white_space(all.substr(end)));
  }
  return Value::list(std::move(parts));
}

Value replace(Call& call) {
  const Text text = text_of(call), with = to_text(call[1], call.budget);
  const std::string old = string_of(call[0]);
  Text out;
  size_t done = 0;
  for (int64_t left = integer_of(call[2], -1); left != 0; --left) {
    const size_t at = find_part(text.str(), old, done);
    if (at == text.size()) break;
    call.budget.allocate(with.size() + 1);
    out.append(text.substr(done, at));
    out.append(with);
    done = at + old.size();
  }
  out.append(text.substr(done, text.size()));
  return out;
}

/// Whether the text begins, or ends, with the argument or with one of its elements.
template <bool at_front>
Value has_end(Call& call) {
  const std::string_view text = call.self.text()->str();
  const std::vector<Value> all = call[0].list() ? call[0].list()->items : std::vector<Value>{call[0]};
  return std::any_of(all.begin(), all.end(), [&](const Value& part) {
    require<ConfigError>(part.text(), "expected a string, found {}", part.describe());
    return at_front ? text.starts_with(part.text()->str()) : text.ends_with(part.text()->str());
  });
}

Value join(const Value& list, const Value& between, const Value& attribute, Budget& budget) {
  const Text separator = to_text(between, budget);
  Text out;
  bool first = true;
  for (const Value& each : elements_of(list, budget)) {
    budget.allocate(separator.size());
    if (!std::exchange(first, false)) out.append(separator);
    out.append(to_text(looked_up(each, attribute, budget), budget));
  }
  return out;
}

Value indent(Call& call) {
  const int64_t width = call[0].text() ? 0 : integer_of(call[0], 4);
  require<ConfigError>(width >= 0 && width <= 1000, "the width of an indent is {}", width);
  const Text text = text_of(call),
             before = call[0].text() ? *call[0].text() : Text(std::string(static_cast<size_t>(width), ' '));
  Text out = call[1].truth() ? before : Text();
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.str().find('\n', begin), text.size());
    call.budget.allocate(before.size());
    if (begin > 0) out.append("\n");
    if (begin > 0 && (end > begin || call[2].truth())) out.append(before);
    out.append(text.substr(begin, end));
    begin = end + 1;
  }
  return out;
}

// Tests.

/// The sign of an operator as a template's argument.
struct Sign {
  char text[3] = {};
  consteval Sign(const char* sign) { std::copy_n(sign, std::char_traits<char>::length(sign), text); }
};

template <Sign sign>
Value is(Call& call) {
  return compares(sign.text, call.self, call[0], call.budget);
}

Value has_elements(Call& call) {
  return call.self.text() || call.self.list() || call.self.map() || call.self.is_undefined();
}

constexpr Builtin kBuiltins[] = {
    {kFunction, "namespace", "*",
     [](Call& call) -> Value {
       return call.machine.make({"a namespace", std::move(call.given.named)});
     }},
    {kFunction, "raise_exception", "message", raise},
    {kFunction, "range", "begin end step", range},
    {kFunction, "strftime_now", "format", strftime_now},

    {kMapMethod, "get", "key default", get},
    {kMapMethod | kFilter, "items", "", items},
    {kMapMethod, "keys", "", [](Call& call) { return Value::list(elements_of(call.self, call.budget)); }},
    {kMapMethod, "values", "", values},

    {kTextMethod | kFilter, "capitalize", "",
     [](Call& call) -> Value { return capitalized(text_of(call), [](char32_t before) { return before == 0; }); }},
    {kTextMethod, "endswith", "suffix", has_end<false>},
    {kTextMethod, "join", "iterable", [](Call& call) { return join(call[0], call.self, {}, call.budget); }},
    {kTextMethod | kFilter, "lower", "", [](Call& call) -> Value { return lower_of(text_of(call)); }},
    {kTextMethod, "lstrip", "chars", strip<true, false>},
    {kTextMethod | kFilter, "replace", "old new count", replace},
    {kTextMethod, "rstrip", "chars", strip<false, true>},
    {kTextMethod, "split", "sep maxsplit", split},
    {kTextMethod, "startswith", "prefix", has_end<true>},
    {kTextMethod, "strip", "chars", strip<true, true>},
    {kTextMethod, "title", "",
     [](Call& call) -> Value {
       return capitalized(text_of(call), [](char32_t before) { return lower(before) == upper(before); });
     }},
    {kTextMethod | kFilter, "upper", "",
     [](Call& call) -> Value { return changed(text_of(call), [](char32_t c, char32_t) { return upper(c); }); }},

    {kFilter, "count", "", length},
    {kFilter, "d", "default_value boolean", fallback},
    {kFilter, "default", "default_value boolean", fallback},
    {kFilter, "dictsort", "case_sensitive", dictsort},
    {kFilter, "first", "", [](Call& call) { return end_of(call, 0); }},
    {kFilter, "indent", "width first blank", indent},
    {kFilter, "int", "default", to_int},
    {kFilter, "join", "d attribute", [](Call& call) { return join(call.self, call[0], call[1], call.budget); }},
    {kFilter, "last", "", [](Call& call) { return end_of(call, -1); }},
    {kFilter, "length", "", length},
    {kFilter, "list", "", [](Call& call) { return Value::list(elements_of(call.self, call.budget)); }},
    {kFilter, "map", "*", map},
    {kFilter, "reject", "*", chosen<false, false>},
    {kFilter, "rejectattr", "*", chosen<false, true>},
    {kFilter, "reverse", "", reverse},
    {kFilter, "safe", "", [](Call& call) { return call.self; }},
    {kFilter, "select", "*", chosen<true, false>},
    {kFilter, "selectattr", "*", chosen<true, true>},
    {kFilter, "sort", "reverse case_sensitive attribute", sort},
    {kFilter, "string", "", [](Call& call) -> Value { return text_of(call); }},
    {kFilter, "tojson", "ensure_ascii indent separators", tojson},
    {kFilter, "trim", "chars", strip<true, true>},

    {kTest, "!=", "other", is<"!=">},
    {kTest, "==", "other", is<"==">},
    {kTest, "boolean", "", [](Call& call) -> Value { return call.self.boolean() != nullptr; }},
    {kTest, "callable", "", [](Call& call) -> Value { return call.self.object() && call.self.object()->call; }},
    {kTest, "defined", "", [](Call& call) -> Value { return !call.self.is_undefined(); }},
    {kTest, "eq", "other", is<"==">},
    {kTest, "equalto", "other", is<"==">},
    {kTest, "false", "", [](Call& call) -> Value { return call.self.boolean() && !call.self.truth(); }},
    {kTest, "float", "", [](Call& call) -> Value { return call.self.real() != nullptr; }},
    {kTest, "ge", "other", is<">=">},
    {kTest, "gt", "other", is<">">},
    {kTest, "in", "seq", is<"in">},
    {kTest, "integer", "", [](Call& call) -> Value { return call.self.integer() != nullptr; }},
    {kTest, "iterable", "", has_elements},
    {kTest, "le", "other", is<"<=">},
    {kTest, "lt", "other", is<"<">},
    {kTest, "mapping", "", [](Call& call) -> Value { return call.self.map() != nullptr; }},
    {kTest, "ne", "other", is<"!=">},
    {kTest, "none", "", [](Call& call) -> Value { return call.self.is_none(); }},
    {kTest, "number", "", [](Call& call) -> Value { return to_real(call.self).has_value(); }},
    {kTest, "sequence", "", has_elements},
    {kTest, "string", "", [](Call& call) -> Value { return call.self.text() != nullptr; }},
    {kTest, "true", "", [](Call& call) -> Value { return call.self.boolean() && call.self.truth(); }},
    {kTest, "undefined", "", [](Call& call) -> Value { return call.self.is_undefined(); }},
};

}  // namespace

const Builtin* find_builtin(int roles, std::string_view name) {
  const auto fits = [&](const Builtin& each) { return (each.roles & roles) != 0 && each.name == name; };
  const auto* found = std::find_if(std::begin(kBuiltins), std::end(kBuiltins), fits);
  return found == std::end(kBuiltins) ? nullptr : found;
}

std::string not_supported(int roles, std::string_view name) {
  std::vector<std::string> names;
  for (const Builtin& each : kBuiltins)
    if (each.roles & roles) names.emplace_back(each.name);
  static constexpr std::array kWords{"function", "filter", "test", "method", "method"};  // by the bits of Role
  return fmt::format("the {} \"{}\" is not supported{}", kWords[std::countr_zero(static_cast<uint32_t>(roles))], name,
                     did_you_mean(name, names));
}

Value run_builtin(const Builtin& builtin, Machine& machine, Value self, Arguments given) {
  machine.budget.step();
  Call call{machine, machine.budget, std::move(self), std::move(given)};
  if (builtin.parameters != "*") {
    std::vector<std::string> names = nought::split(builtin.parameters, ' ');
    std::erase(names, "");
    call.bound = bind_arguments(builtin.name, names, std::move(call.given));
  }
  Value result = builtin.run(call);
  if (result.text()) machine.budget.allocate(result.text()->size());
  if (result.list()) machine.budget.allocate(result.list()->items.size() * sizeof(Value));
  return result;
}

}  // namespace nought::jinja
