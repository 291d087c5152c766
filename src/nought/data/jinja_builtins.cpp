#include "nought/data/jinja_builtins.h"

#include <algorithm>
#include <cmath>

#include "nought/base/text.h"
#include "nought/data/unicode.h"

namespace nought::jinja {

namespace {

Value text_or(const Value& value, std::string_view fallback) {
  return value.is_undefined() ? Value(Text(fallback)) : value;
}

// Functions.

Value raise(Call& call) { throw Refusal(one_line(to_text(call[0], call.budget).str())); }

Value strftime_now(Call& call) {
  const std::string format = to_text(call[0], call.budget).str();
  char buffer[256];
  require<ConfigError>(format.size() <= 100, "the format of a time has {} bytes", format.size());
  return Text(std::string_view(buffer, std::strftime(buffer, sizeof buffer, format.c_str(), &call.now)));
}

Value new_namespace(Call& call) {
  const auto made = std::make_shared<Namespace>();
  for (auto& [name, value] : call.named) made->set(name, std::move(value));
  return Value(std::shared_ptr<Object>(made));
}

Value dict(Call& call) {
  std::vector<std::pair<Text, Value>> items;
  for (auto& [name, value] : call.named) items.emplace_back(Text(name), std::move(value));
  return Value::map(std::move(items));
}

int64_t integer_of(const Value& value, std::string_view what) {
  int64_t number = 0;
  require<ConfigError>(to_integer(value, number), "{} is {}, expected an integer", what, value.describe());
  return number;
}

Value range(Call& call) {
  const bool one = call[1].is_undefined();
  const int64_t first = one ? 0 : integer_of(call[0], "the begin of a range");
  const int64_t last = integer_of(call[one ? 0 : 1], "the end of a range");
  const int64_t step = call[2].is_undefined() ? 1 : integer_of(call[2], "the step of a range");
  require<ConfigError>(step != 0, "the step of a range is 0");
  std::vector<Value> items;
  for (int64_t i = first; step > 0 ? i < last : i > last;) {
    call.budget.step();
    call.budget.allocate(sizeof(Value));
    items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return Value::list(std::move(items));
}

// Methods and filters of mappings and lists.

Value items(Call& call) {
  std::vector<Value> pairs;
  if (call.self.is_undefined()) return Value::list({});
  require<ConfigError>(call.self.map(), "{} has no items", call.self.describe());
  for (const auto& [key, value] : call.self.map()->items) {
    call.budget.allocate(4 * sizeof(Value) + key.size());
    pairs.push_back(Value::list({Value(key), value}, true));
  }
  return Value::list(std::move(pairs));
}

Value keys(Call& call) {
  require<ConfigError>(call.self.map(), "{} has no keys", call.self.describe());
  return Value::list(elements_of(call.self, call.budget));
}

Value values(Call& call) {
  require<ConfigError>(call.self.map(), "{} has no values", call.self.describe());
  std::vector<Value> all;
  for (const auto& [key, value] : call.self.map()->items) all.push_back(value);
  call.budget.allocate(all.size() * sizeof(Value));
  return Value::list(std::move(all));
}

Value get(Call& call) {
  require<ConfigError>(call.self.map(), "{} has no method \"get\"", call.self.describe());
  const Value* found = call[0].text() ? call.self.map()->find(call[0].text()->str()) : nullptr;
  return found ? *found : call[1].is_undefined() ? Value(Value::None()) : call[1];
}

Value cycle(Call& call) {
  const Value index = attribute_of(call.self, "index0");
  require<ConfigError>(call.self.object() && index.integer() && !call.positional.empty(), "\"cycle\" is a loop's");
  return call.positional[static_cast<size_t>(*index.integer()) % call.positional.size()];
}

Value length(Call& call) {
  const Value& self = call.self;
  const size_t size = self.list()   ? self.list()->items.size()
                      : self.map()  ? self.map()->items.size()
                      : self.text() ? Characters(*self.text(), call.budget).size()
                                    : elements_of(self, call.budget).size();
  return static_cast<int64_t>(size);
}

Value list(Call& call) { return Value::list(elements_of(call.self, call.budget)); }
Value string(Call& call) { return to_text(call.self, call.budget); }
Value safe(Call& call) { return call.self; }

Value first(Call& call) {
  const std::vector<Value> all = elements_of(call.self, call.budget);
  return all.empty() ? Value::undefined("the first of nothing") : all.front();
}

Value last(Call& call) {
  const std::vector<Value> all = elements_of(call.self, call.budget);
  return all.empty() ? Value::undefined("the last of nothing") : all.back();
}

Value reverse(Call& call) {
  std::vector<Value> all = elements_of(call.self, call.budget);
  std::reverse(all.begin(), all.end());
  if (!call.self.text()) return Value::list(std::move(all));
  Text text;
  for (const Value& each : all) text.append(*each.text());
  return text;
}

Value fallback(Call& call) {
  return call.self.is_undefined() || (call[1].truth() && !call.self.truth()) ? text_or(call[0], "") : call.self;
}

Value to_int(Call& call) {
  int64_t number = 0;
  double real = 0;
  if (to_integer(call.self, number)) return number;
  const std::string text = call.self.text() ? std::string(trim(call.self.text()->str())) : "";
  char* end = nullptr;
  if (!text.empty()) real = std::strtod(text.c_str(), &end);
  const bool known =
      call.self.real() ? to_real(call.self, real) : end && *end == '\0' && text.find_first_of("xX") == text.npos;
  if (!known || !(std::abs(real) < 9e18)) return call[0].is_undefined() ? Value(int64_t{0}) : call[0];
  return text.find_first_of(".eE") == text.npos && end
             ? Value(static_cast<int64_t>(std::strtoll(text.c_str(), nullptr, 10)))
             : Value(static_cast<int64_t>(real));
}

Value to_float(Call& call) {
  double real = 0;
  if (to_real(call.self, real)) return real;
  const std::string text = call.self.text() ? std::string(trim(call.self.text()->str())) : "";
  char* end = nullptr;
  if (!text.empty()) real = std::strtod(text.c_str(), &end);
  if (end && *end == '\0') return real;
  return call[0].is_undefined() ? Value(0.0) : call[0];
}

Value tojson(Call& call) {
  JsonStyle style;
  style.ascii = call[0].truth(), style.sorted = call[3].truth();
  if (call[1].integer())
    style.indent = static_cast<int>(std::clamp<int64_t>(*call[1].integer(), 0, 100)), style.comma = ",";
  if (const List* both = call[2].list();
      both && both->items.size() == 2 && both->items[0].text() && both->items[1].text())
    style.comma = both->items[0].text()->str(), style.colon = both->items[1].text()->str();
  return to_json(call.self, style, call.budget);
}

/// What a filter looks at in each element: an attribute "a.b.0", or the element if there is none.
Value looked_up(Value value, const Value& path, Budget& budget) {
  if (path.integer()) return item_of(value, path, budget);
  if (!path.text()) return value;
  for (const std::string& part : nought::split(path.text()->str(), '.')) {
    const bool number = !part.empty() && part.size() < 10 && part.find_first_not_of("0123456789") == part.npos;
    value = item_of(value, number ? Value(static_cast<int64_t>(std::stoll(part))) : Value(Text(part)), budget);
  }
  return value;
}

/// The value as sort and unique see it: without the case of its letters.
Value folded(const Value& value, const Value& case_sensitive, Budget& budget) {
  return value.text() && !case_sensitive.truth() ? Value(lower_of(to_text(value, budget))) : value;
}

void stable_sort(std::vector<std::pair<Value, Value>>& keyed, bool reversed, Budget& budget) {
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return reversed ? compare(b.first, a.first, budget) < 0 : compare(a.first, b.first, budget) < 0;
  });
}

Value sort(Call& call) {
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& each : elements_of(call.self, call.budget))
    keyed.emplace_back(folded(looked_up(each, call[2], call.budget), call[1], call.budget), each);
  stable_sort(keyed, call[0].truth(), call.budget);
  std::vector<Value> sorted;
  for (auto& [key, value] : keyed) sorted.push_back(std::move(value));
  return Value::list(std::move(sorted));
}

Value dictsort(Call& call) {
  const bool by_value = call[1].text() && call[1].text()->str() == "value";
  std::vector<std::pair<Value, Value>> keyed;
  const Value pairs = items(call);
  for (const Value& pair : pairs.list()->items)
    keyed.emplace_back(folded(pair.list()->items[by_value ? 1 : 0], call[0], call.budget), pair);
  stable_sort(keyed, call[2].truth(), call.budget);
  std::vector<Value> sorted;
  for (auto& [key, value] : keyed) sorted.push_back(std::move(value));
  return Value::list(std::move(sorted));
}

Value unique(Call& call) {
  std::vector<Value> seen, kept;
  for (const Value& each : elements_of(call.self, call.budget)) {
    const Value key = folded(looked_up(each, call[1], call.budget), call[0], call.budget);
    if (std::any_of(seen.begin(), seen.end(), [&](const Value& other) { return equal(key, other, call.budget); }))
      continue;
    seen.push_back(key);
    kept.push_back(each);
  }
  return Value::list(std::move(kept));
}

/// Calls the filter or test that the first of `names` names with the others, on a value.
Value apply(Builtins all, std::string_view what, const Value& value, std::span<const Value> names, const Call& call) {
  require<ConfigError>(names[0].text(), "the name of a {} is {}", what, names[0].describe());
  const Builtin* builtin = find_builtin(all, names[0].text()->str());
  require<ConfigError>(builtin, "the {} \"{}\" is not supported", what, names[0].text()->str());
  return run_builtin(*builtin, {call.budget, call.now, value, {names.begin() + 1, names.end()}, {}});
}

Value map(Call& call) {
  std::vector<Value> made;
  const auto named = [&](std::string_view name) {
    for (const auto& [key, value] : call.named)
      if (key == name) return value;
    return Value();
  };
  const Value attribute = named("attribute"), otherwise = named("default");
  require<ConfigError>(attribute.is_undefined() == !call.positional.empty(), "\"map\" takes a filter, or attribute=");
  for (const Value& each : elements_of(call.self, call.budget)) {
    Value value = attribute.is_undefined() ? apply(filters(), "filter", each, call.positional, call)
                                           : looked_up(each, attribute, call.budget);
    made.push_back(value.is_undefined() && !otherwise.is_undefined() ? otherwise : std::move(value));
  }
  return Value::list(std::move(made));
}

Value chosen(Call& call, bool wanted, bool by_attribute) {
  std::span<const Value> test(call.positional);
  require<ConfigError>(!by_attribute || !test.empty(), "\"selectattr\" and \"rejectattr\" take an attribute");
  if (by_attribute) test = test.subspan(1);
  std::vector<Value> kept;
  for (const Value& each : elements_of(call.self, call.budget)) {
    const Value seen = by_attribute ? looked_up(each, call.positional[0], call.budget) : each;
    const bool holds = test.empty() ? seen.truth() : apply(tests(), "test", seen, test, call).truth();
    if (holds == wanted) kept.push_back(each);
  }
  return Value::list(std::move(kept));
}

// Tests.

bool is_whole(const Value& value, int64_t by, int64_t rest) {
  const int64_t number = integer_of(value, "what is tested");
  require<ConfigError>(by != 0, "nothing is divisible by 0");
  return by == -1 ? rest == 0 : ((number % by) + by) % by == rest;
}

template <class Holds>
Value ordered(Call& call, Holds holds) {
  return holds(compare(call.self, call[0], call.budget));
}

constexpr Builtin kFunctions[] = {{"dict", "*", dict},
                                  {"namespace", "*", new_namespace},
                                  {"raise_exception", "message", raise},
                                  {"range", "begin end step", range},
                                  {"strftime_now", "format", strftime_now}};

constexpr Builtin kListFilters[] = {{"count", "", length},
                                    {"d", "default_value boolean", fallback},
                                    {"default", "default_value boolean", fallback},
                                    {"dictsort", "case_sensitive by reverse", dictsort},
                                    {"first", "", first},
                                    {"float", "default", to_float},
                                    {"int", "default", to_int},
                                    {"items", "", items},
                                    {"last", "", last},
                                    {"length", "", length},
                                    {"list", "", list},
                                    {"map", "*", map},
                                    {"reject", "*", [](Call& call) { return chosen(call, false, false); }},
                                    {"rejectattr", "*", [](Call& call) { return chosen(call, false, true); }},
                                    {"reverse", "", reverse},
                                    {"safe", "", safe},
                                    {"select", "*", [](Call& call) { return chosen(call, true, false); }},
                                    {"selectattr", "*", [](Call& call) { return chosen(call, true, true); }},
                                    {"sort", "reverse case_sensitive attribute", sort},
                                    {"string", "", string},
                                    {"tojson", "ensure_ascii indent separators sort_keys", tojson},
                                    {"unique", "case_sensitive attribute", unique}};

constexpr Builtin kMapMethods[] = {{"cycle", "*", cycle},
                                   {"get", "key default", get},
                                   {"items", "", items},
                                   {"keys", "", keys},
                                   {"values", "", values}};

constexpr Builtin kTests[] = {
    {"!=", "other", [](Call& call) { return Value(!equal(call.self, call[0], call.budget)); }},
    {"==", "other", [](Call& call) { return Value(equal(call.self, call[0], call.budget)); }},
    {"boolean", "", [](Call& call) { return Value(call.self.boolean() != nullptr); }},
    {"callable", "", [](Call& call) { return Value(call.self.object() != nullptr); }},
    {"defined", "", [](Call& call) { return Value(!call.self.is_undefined()); }},
    {"divisibleby", "number",
     [](Call& call) { return Value(is_whole(call.self, integer_of(call[0], "the divisor"), 0)); }},
    {"eq", "other", [](Call& call) { return Value(equal(call.self, call[0], call.budget)); }},
    {"equalto", "other", [](Call& call) { return Value(equal(call.self, call[0], call.budget)); }},
    {"even", "", [](Call& call) { return Value(is_whole(call.self, 2, 0)); }},
    {"false", "", [](Call& call) { return Value(call.self.boolean() && !call.self.truth()); }},
    {"float", "", [](Call& call) { return Value(call.self.real() != nullptr); }},
    {"ge", "other", [](Call& call) { return ordered(call, [](int order) { return order >= 0; }); }},
    {"gt", "other", [](Call& call) { return ordered(call, [](int order) { return order > 0; }); }},
    {"in", "seq", [](Call& call) { return Value(contains(call[0], call.self, call.budget)); }},
    {"integer", "", [](Call& call) { return Value(call.self.integer() != nullptr); }},
    {"iterable", "",
     [](Call& call) {
       return Value(call.self.text() || call.self.list() || call.self.map() || call.self.is_undefined());
     }},
    {"le", "other", [](Call& call) { return ordered(call, [](int order) { return order <= 0; }); }},
    {"lower", "",
     [](Call& call) {
       const Text text = to_text(call.self, call.budget);
       return Value(lower_of(text).str() == text.str() && upper_of(text).str() != text.str());
     }},
    {"lt", "other", [](Call& call) { return ordered(call, [](int order) { return order < 0; }); }},
    {"mapping", "", [](Call& call) { return Value(call.self.map() != nullptr); }},
    {"ne", "other", [](Call& call) { return Value(!equal(call.self, call[0], call.budget)); }},
    {"none", "", [](Call& call) { return Value(call.self.is_none()); }},
    {"number", "",
     [](Call& call) {
       double ignored = 0;
       return Value(to_real(call.self, ignored));
     }},
    {"odd", "", [](Call& call) { return Value(is_whole(call.self, 2, 1)); }},
    {"sequence", "",
     [](Call& call) {
       return Value(call.self.text() || call.self.list() || call.self.map() || call.self.is_undefined());
     }},
    {"string", "", [](Call& call) { return Value(call.self.text() != nullptr); }},
    {"true", "", [](Call& call) { return Value(call.self.boolean() && call.self.truth()); }},
    {"undefined", "", [](Call& call) { return Value(call.self.is_undefined()); }},
    {"upper", "", [](Call& call) {
       const Text text = to_text(call.self, call.budget);
       return Value(upper_of(text).str() == text.str() && lower_of(text).str() != text.str());
     }}};

std::vector<Builtin> both(Builtins some, Builtins others) {
  std::vector<Builtin> all(some.begin(), some.end());
  all.insert(all.end(), others.begin(), others.end());
  return all;
}

}  // namespace

Builtins functions() { return kFunctions; }
Builtins tests() { return kTests; }
Builtins filters() {
  static const std::vector<Builtin> all = both(kListFilters, text_filters());
  return all;
}
Builtins methods() {
  static const std::vector<Builtin> all = both(kMapMethods, text_methods());
  return all;
}

const Builtin* find_builtin(Builtins all, std::string_view name) {
  const auto found = std::find_if(all.begin(), all.end(), [&](const Builtin& each) { return each.name == name; });
  return found == all.end() ? nullptr : &*found;
}

Value run_builtin(const Builtin& builtin, Call call) {
  call.budget.step();
  if (builtin.parameters == "*") return builtin.run(call);
  const std::vector<std::string> names = nought::split(std::string(builtin.parameters), ' ');
  call.bound.resize(std::max<size_t>(names.size(), 1));
  const size_t count = builtin.parameters.empty() ? 0 : names.size();
  require<ConfigError>(call.positional.size() <= count, "\"{}\" takes {} arguments, got {}", builtin.name, count,
                       call.positional.size());
  std::move(call.positional.begin(), call.positional.end(), call.bound.begin());
  for (auto& [name, value] : call.named) {
    const auto at = std::find(names.begin(), names.end(), name);
    require<ConfigError>(at != names.end(), "\"{}\" has no argument \"{}\"", builtin.name, name);
    call.bound[static_cast<size_t>(at - names.begin())] = std::move(value);
  }
  return builtin.run(call);
}

}  // namespace nought::jinja
