#include <algorithm>
#include <array>
#include <bit>

#include <utf8proc.h>

#include "nought/base/text.h"
#include "nought/chat/jinja_machine.h"

namespace nought::jinja {

namespace {

constexpr size_t kCall = 4;  // steps of a call: what it allocates for its arguments and for what it returns

// What arguments are.

int64_t integer_of(const Value& value, std::optional<int64_t> otherwise = {}) {
  const auto integer = value.is_undefined() || value.is_none() ? otherwise : to_integer(value);
  if (!integer) fail<ConfigError>("expected an integer, found {}", value.describe());
  return *integer;
}

const Text& text_of(const Value& value) {
  if (!value.text() || value.text()->empty()) fail<ConfigError>("expected a string, found {}", value.describe());
  return *value.text();
}

/// The words with spaces between them.
std::vector<std::string> words(std::string_view text) {
  return text.empty() ? std::vector<std::string>() : nought::split(text, ' ');
}

// Functions.

Value raise(Call& call) {
  constexpr size_t kLongest = 200;  // it may quote a whole conversation
  call.machine.refuses = true;
  const Text message = to_text(call[0], call.budget);
  fail<ConfigError>("{}{}", to_utf8(message.substr(0, kLongest)), message.size() > kLongest ? "..." : "");
}

Value make_namespace(Call& call) {
  const bool has_names =
      std::none_of(call.given.keys.begin(), call.given.keys.end(), std::mem_fn(&Value::is_undefined));
  require<ConfigError>(has_names, "the arguments of \"namespace\" have names");
  return Items{.kind = Items::kSpace, .values = call.given.values, .keys = call.given.keys};
}

Value strftime_now(Call& call) {
  const std::string format = to_utf8(text_of(call[0]));
  require<ConfigError>(format.size() <= 100, "the format of a time has {} bytes", format.size());
  char buffer[256];
  return from_utf8(std::string_view(buffer, std::strftime(buffer, sizeof buffer, format.c_str(), &call.machine.now)));
}

Value range(Call& call) {
  const bool has_begin = !call[1].is_undefined();
  const int64_t first = has_begin ? integer_of(call[0]) : 0, last = integer_of(call[has_begin ? 1 : 0]);
  const int64_t step = integer_of(call[2], 1);
  require<ConfigError>(step != 0, "the step of a range is 0");
  std::vector<Value> items;
  for (int64_t i = first; step > 0 ? i < last : i > last;) {
    call.budget.step(2);
    items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return Value::list(std::move(items));
}

// Lists and mappings.

Value items(Call& call) {
  if (!call.self.map() && !call.self.is_undefined()) fail<ConfigError>("{} has no items", call.self.describe());
  const std::vector<Value> keys = elements_of(call.self, call.budget);
  call.budget.step(8 * keys.size());
  std::vector<Value> pairs;
  for (size_t i = 0; i < keys.size(); ++i) pairs.push_back(Value::list({keys[i], call.self.map()->values[i]}, true));
  return Value::list(std::move(pairs));
}

/// A text or a list as it is; the keys of a mapping.
Value sequence(Call& call) {
  return call.self.text() || call.self.list() ? call.self : Value::list(elements_of(call.self, call.budget));
}

Value length(Call& call) {
  const size_t size = call.self.text() ? call.self.text()->size() : elements_of(call.self, call.budget).size();
  return static_cast<int64_t>(size);
}

Value fallback(Call& call) {
  const bool is_missing = call.self.is_undefined() || (call[1].truth() && !call.self.truth());
  return !is_missing ? call.self : call[0].is_undefined() ? Value(Text()) : call[0];
}

Value tojson(Call& call) {
  JsonStyle style{.ascii = call[0].truth()};
  if (const int64_t indent = integer_of(call[1], -1); indent >= 0)
    style = {.ascii = style.ascii, .indent = static_cast<int>(std::min<int64_t>(indent, 100)), .comma = ","};
  if (const Items* separators = call[2].list()) {
    require<ConfigError>(separators->values.size() == 2, "JSON has two separators, found {}",
                         separators->values.size());
    style.comma = to_utf8(text_of(separators->values[0]));
    style.colon = to_utf8(text_of(separators->values[1]));
  }
  return to_json(call.self, style, call.budget);
}

/// What a filter looks at in each element: an attribute "a.b.0", or the element if there is none.
Value looked_up(Value value, const Value& path, Budget& budget) {
  if (!path.text()) return path.is_undefined() ? value : item_of(value, path, budget);
  budget.touch(*path.text());
  for (const std::string& part : nought::split(to_utf8(*path.text()), '.')) {
    const bool is_number = !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == part.npos;
    value = item_of(value, is_number ? Value(int64_t{std::stoi(part)}) : Value(from_utf8(part)), budget);
  }
  return value;
}

/// The filter or test that a value names, as a function of a value and perhaps another. As it is, if there is no name.
std::function<Value(const Value&)> named(Call& call, Role role, const Value& name, const Value& other) {
  if (name.is_undefined()) return [](const Value& value) { return value; };
  const std::string called = to_utf8(text_of(name));
  const Builtin* builtin = find_builtin(role, called);
  if (!builtin) fail<ConfigError>("{}", not_supported(role, called));
  Items given;
  if (!other.is_undefined()) given = {.values = {other}, .keys = {Value()}};
  return [=, &call](const Value& value) { return run_builtin(*builtin, role, called, call.machine, value, given); };
}

Value map(Call& call) {
  const bool has_filter = !call[0].is_undefined(), has_attribute = !call[1].is_undefined();
  require<ConfigError>(has_filter != has_attribute, "\"map\" takes the name of a filter, or attribute=");
  const auto filter = named(call, kFilter, call[0], {});
  std::vector<Value> made;
  for (const Value& each : elements_of(call.self, call.budget)) {
    const Value value = filter(looked_up(each, call[1], call.budget));
    made.push_back(value.is_undefined() ? call[2] : value);
  }
  return Value::list(std::move(made));
}

/// The elements that pass the test "name(other)", or whose attribute does; those that do not if the filter rejects.
/// Without a test, they are true.
Value chosen(Call& call, const Value& attribute, const Value& test, const Value& other) {
  const auto holds = named(call, kTest, test, other);
  std::vector<Value> kept;
  for (const Value& each : elements_of(call.self, call.budget))
    if (holds(looked_up(each, attribute, call.budget)).truth() == call.name.starts_with("select")) kept.push_back(each);
  return Value::list(std::move(kept));
}

// Texts.

char32_t lower(char32_t c) { return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))); }
char32_t upper(char32_t c) { return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))); }

/// The text, each character as change(character, the one before it, or 0) makes it.
Text changed(const Value& text, Budget& budget, char32_t (*change)(char32_t c, char32_t before)) {
  budget.step(text.text()->size());
  Text out = *text.text();
  char32_t before = 0;
  for (char32_t& each : out) {
    const char32_t c = code_point(each), flags = each - c;
    each = change(c, std::exchange(before, c)) | flags;
  }
  return out;
}

char32_t to_lower(char32_t c, char32_t) { return lower(c); }
char32_t to_upper(char32_t c, char32_t) { return upper(c); }
char32_t to_capitalized(char32_t c, char32_t before) { return before == 0 ? upper(c) : lower(c); }
char32_t to_title(char32_t c, char32_t before) { return lower(before) == upper(before) ? upper(c) : lower(c); }

Value change_case(Call& call) {
  const auto to = call.name == "lower"        ? to_lower
                  : call.name == "upper"      ? to_upper
                  : call.name == "capitalize" ? to_capitalized
                                              : to_title;
  return changed(call.self, call.budget, to);
}

/// In the order of what is found at a path in each; the order of equal ones stays.
Value sorted(const std::vector<Value>& all, const Value& path, bool case_sensitive, bool reversed, Budget& budget) {
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& each : all) {
    const Value key = looked_up(each, path, budget);
    keyed.emplace_back(key.text() && !case_sensitive ? Value(changed(key, budget, to_lower)) : key, each);
  }
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return binary(reversed ? ">" : "<", a.first, b.first, budget).truth();
  });
  std::vector<Value> values;
  for (const auto& [key, value] : keyed) values.push_back(value);
  return Value::list(std::move(values));
}

const Text kWhiteSpace =
    U"\t\n\v\f\r\x1C\x1D\x1E\x1F \u0085\u00A0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200A"
    U"\u2028\u2029\u202F\u205F\u3000";

template <bool left, bool right>
Value strip(Call& call) {
  const Value given = call[0];
  const Text &text = *call.self.text(), &set = given.text() ? *given.text() : kWhiteSpace;
  call.budget.search(text, set);
  const size_t begin = left ? std::min(text.find_first_not_of(set), text.size()) : 0;
  const size_t end = right ? text.find_last_not_of(set) + 1 : text.size();
  return text.substr(begin, std::max(begin, end) - begin);
}

Value split(Call& call) {
  const Text& text = *call.self.text();
  const bool by_space = !call[0].text();
  const Text by = by_space ? kWhiteSpace : text_of(call[0]);
  call.budget.search(text, by);
  std::vector<Value> parts;
  size_t begin = by_space ? text.find_first_not_of(by) : 0;
  for (int64_t left = integer_of(call[1], -1); begin != text.npos; --left) {
    const size_t end = left == 0 ? text.npos : by_space ? text.find_first_of(by, begin) : text.find(by, begin);
    call.budget.step(4);
    parts.emplace_back(text.substr(begin, end - begin));
    begin = by_space ? text.find_first_not_of(by, end) : end == text.npos ? end : end + by.size();
  }
  return Value::list(std::move(parts));
}

Value replace(Call& call) {
  const Text &text = *call.self.text(), old = text_of(call[0]), with = to_text(call[1], call.budget);
  call.budget.search(text, old);
  Text out;
  size_t done = 0;
  for (int64_t left = integer_of(call[2], -1); left != 0; --left) {
    const size_t at = text.find(old, done);
    if (at == text.npos) break;
    call.budget.touch(with);
    out.append(text, done, at - done).append(with);
    done = at + old.size();
  }
  return out.append(text, done);
}

/// Whether the text begins, or ends, with the argument or with one of its elements.
template <bool at_front>
Value has_end(Call& call) {
  const Text& text = *call.self.text();
  const std::vector<Value> all = call[0].list() ? elements_of(call[0], call.budget) : std::vector<Value>{call[0]};
  return std::any_of(all.begin(), all.end(), [&](const Value& part) {
    if (!part.text()) fail<ConfigError>("expected a string, found {}", part.describe());
    call.budget.touch(*part.text());
    return at_front ? text.starts_with(*part.text()) : text.ends_with(*part.text());
  });
}

Value join(const Value& all, const Value& between, const Value& attribute, Budget& budget) {
  Text out;
  bool first = true;
  for (const Value& each : elements_of(all, budget)) {
    if (!std::exchange(first, false)) out += to_text(between, budget);
    out += to_text(looked_up(each, attribute, budget), budget);
  }
  return out;
}

Value indent(Call& call) {
  const int64_t width = integer_of(call[0], 4);
  require<ConfigError>(width >= 0 && width <= 1000, "the width of an indent is {}", width);
  const Text &text = *call.self.text(), before(static_cast<size_t>(width), U' ');
  Text out = call[1].truth() ? before : Text();
  call.budget.step(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    out += text[i];
    const bool ends_line = code_point(text[i]) == U'\n',
               is_empty = i + 1 == text.size() || code_point(text[i + 1]) == U'\n';
    if (!ends_line || is_empty) continue;
    call.budget.touch(before);
    out += before;
  }
  return out;
}

// Tests.

Value is(Call& call) { return call.self.type() == call.name; }
Value is_truth(Call& call) { return call.self.boolean() && call.self.truth() == (call.name == "true"); }
Value has_elements(Call& call) { return call.self.text() || call.self.items() || call.self.is_undefined(); }

/// Compares by an operator, which has a name as a test.
Value compare(Call& call) {
  static constexpr std::string_view kNames[] = {"eq", "ne", "lt", "le", "gt", "ge", "equalto"};
  static constexpr std::string_view kSigns[] = {"==", "!=", "<", "<=", ">", ">=", "=="};
  const auto at = std::find(std::begin(kNames), std::end(kNames), call.name) - std::begin(kNames);
  return binary(at < std::ssize(kNames) ? kSigns[at] : call.name, call.self, call[0], call.budget);
}

const std::vector<Builtin>& builtins() {
  static const std::vector<Builtin> kBuiltins{
      {kFunction, "namespace", "*", make_namespace},
      {kFunction, "raise_exception", "message", raise},
      {kFunction, "range", "begin end step", range},
      {kFunction, "strftime_now", "format", strftime_now},

      {kMethod | kOfMap, "get", "key default",
       [](Call& call) {
         const Value found = item_of(call.self, call[0], call.budget);
         return !found.is_undefined() ? found : call.bound[1] ? call[1] : Value(Value::None());
       }},
      {kMethod | kOfMap, "keys", "", [](Call& call) { return Value::list(elements_of(call.self, call.budget)); }},
      {kMethod | kOfMap, "values", "",
       [](Call& call) {
         call.budget.step(2 * call.self.map()->values.size());
         return Value::list(call.self.map()->values);
       }},
      {kMethod | kOfMap | kFilter, "items", "", items},

      {kMethod | kOfText | kFilter, "capitalize lower title upper", "", change_case},
      {kMethod | kOfText | kFilter, "replace", "old new count", replace},
      {kMethod | kOfText, "endswith", "suffix", has_end<false>},
      {kMethod | kOfText, "startswith", "prefix", has_end<true>},
      {kMethod | kOfText, "lstrip", "chars", strip<true, false>},
      {kMethod | kOfText, "rstrip", "chars", strip<false, true>},
      {kMethod | kOfText, "strip", "chars", strip<true, true>},
      {kMethod | kOfText, "split", "sep maxsplit", split},
      {kMethod | kOfText, "join", "iterable", [](Call& call) { return join(call[0], call.self, {}, call.budget); }},
      {kFilter | kOfText, "indent", "width first", indent},
      {kFilter | kOfText, "string safe", "", [](Call& call) { return call.self; }},
      {kFilter | kOfText, "trim", "chars", strip<true, true>},

      {kFilter, "default d", "default_value boolean", fallback},
      {kFilter, "dictsort", "",
       [](Call& call) { return sorted(items(call).list()->values, int64_t{0}, false, false, call.budget); }},
      {kFilter, "sort", "reverse case_sensitive attribute",
       [](Call& call) {
         return sorted(elements_of(call.self, call.budget), call[2], call[1].truth(), call[0].truth(), call.budget);
       }},
      {kFilter, "first", "", [](Call& call) { return item_of(sequence(call), int64_t{0}, call.budget); }},
      {kFilter, "last", "", [](Call& call) { return item_of(sequence(call), int64_t{-1}, call.budget); }},
      {kFilter, "join", "d attribute", [](Call& call) { return join(call.self, call[0], call[1], call.budget); }},
      {kFilter, "length count", "", length},
      {kFilter, "list", "", [](Call& call) { return Value::list(elements_of(call.self, call.budget)); }},
      {kFilter, "map", "filter attribute default", map},
      {kFilter, "select reject", "test other", [](Call& call) { return chosen(call, {}, call[0], call[1]); }},
      {kFilter, "selectattr rejectattr", "attribute test other",
       [](Call& call) { return chosen(call, call[0], call[1], call[2]); }},
      {kFilter, "reverse", "", [](Call& call) { return slice_of(sequence(call), {}, {}, int64_t{-1}, call.budget); }},
      {kFilter, "tojson", "ensure_ascii indent separators", tojson},

      {kTest, "boolean float integer mapping none string undefined", "", is},
      {kTest, "defined", "", [](Call& call) -> Value { return !call.self.is_undefined(); }},
      {kTest, "true false", "", is_truth},
      {kTest, "iterable sequence", "", has_elements},
      {kTest, "number", "", [](Call& call) -> Value { return to_real(call.self).has_value(); }},
      {kTest, "eq equalto == ne != lt < le <= gt > ge >= in", "other", compare},
  };
  return kBuiltins;
}

}  // namespace

Builtin::Builtin(int roles, std::string_view names, std::string_view parameters, Value (*run)(Call& call))
    : roles(roles), names(words(names)), takes_any(parameters == "*"), run(run) {
  for (const std::string& each : words(parameters)) this->parameters.emplace_back(from_utf8(each));
}

const Builtin* find_builtin(Role role, std::string_view name) {
  for (const Builtin& each : builtins())
    if ((each.roles & role) != 0 && std::find(each.names.begin(), each.names.end(), name) != each.names.end())
      return &each;
  return nullptr;
}

std::string not_supported(Role role, std::string_view name) {
  std::vector<std::string> names;
  for (const Builtin& each : builtins())
    if ((each.roles & role) != 0) names.insert(names.end(), each.names.begin(), each.names.end());
  static constexpr std::array kWords{"function", "filter", "test", "method"};  // by the bits of Role
  return fmt::format("the {} \"{}\" is not supported{}", kWords[std::countr_zero(uint32_t{role})], name,
                     did_you_mean(name.substr(0, 40), names));
}

Value run_builtin(const Builtin& builtin, Role role, std::string_view name, Machine& machine, Value self,
                  const Items& given) {
  const bool is_of_text = (builtin.roles & kOfText) != 0, is_of_map = (builtin.roles & kOfMap) != 0;
  const bool fits = (!is_of_text || self.text()) && (!is_of_map || self.map());
  if (!fits && role == kMethod) fail<ConfigError>("{} has no method \"{}\"", self.describe(), name);
  if (!fits && is_of_text) self = to_text(self, machine.budget);
  machine.budget.step(kCall);
  Call call{machine, machine.budget, name, std::move(self), given};
  if (!builtin.takes_any) call.bound = bind_arguments(name, builtin.parameters, given, machine.budget);
  return builtin.run(call);
}

}  // namespace nought::jinja
