#include <algorithm>
#include <array>
#include <compare>

#include "nought/base/error.h"
#include "nought/data/jinja_value.h"

namespace nought::jinja {

namespace {

Value of_integers(std::string_view sign, int64_t a, int64_t b) {
  int64_t result = 0;
  bool fits = true;
  if (sign == "+") fits = !__builtin_add_overflow(a, b, &result);
  if (sign == "-") fits = !__builtin_sub_overflow(a, b, &result);
  if (sign == "*") fits = !__builtin_mul_overflow(a, b, &result);
  if (sign == "/" || sign == "//" || sign == "%") {
    require<ConfigError>(b != 0, "{} {} 0 divides by zero", a, sign);
    if (sign == "/") return static_cast<double>(a) / static_cast<double>(b);
    if (b == -1) return sign == "%" ? Value(int64_t{0}) : of_integers("-", 0, a);
    result = a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);  // Python rounds towards minus infinity
    if (sign == "%") result = a - result * b;
  }
  require<ConfigError>(fits, "{} {} {} has more than 64 bits", a, sign, b);
  return result;
}

Value repeated(const Text& text, int64_t times, Budget& budget) {
  const auto count = static_cast<size_t>(std::max<int64_t>(times, 0));
  size_t bytes = 0;
  require<ConfigError>(!__builtin_mul_overflow(text.size(), count, &bytes), "{} times {} bytes are too many", count,
                       text.size());
  budget.allocate(bytes);
  Text out;
  for (size_t i = 0; i < count && !text.empty(); ++i) out.append(text);
  return out;
}

void require_defined(const Value& value, std::string_view wanted) {
  require<ConfigError>(!value.is_undefined(), "can not look up \"{}\" in {}", wanted, value.describe());
}

bool contains(const Value& in, const Value& what, Budget& budget) {
  if (in.text()) {
    require<ConfigError>(what.text(), "a string can not contain {}", what.describe());
    budget.step(in.text()->size() / 64);
    return what.text()->empty() || find_part(in.text()->str(), what.text()->str()) < in.text()->size();
  }
  if (in.map()) {
    budget.step(in.map()->items.size() / 8);
    return what.text() && in.map()->find(what.text()->str());
  }
  const std::vector<Value> items = elements_of(in, budget);
  return std::any_of(items.begin(), items.end(), [&](const Value& each) { return compares("==", each, what, budget); });
}

/// The order of two numbers, or of two strings; nothing for others.
std::optional<std::partial_ordering> order_of(const Value& a, const Value& b, Budget& budget) {
  budget.step();
  const auto i = to_integer(a), j = to_integer(b);
  if (i && j) return *i <=> *j;
  const auto x = to_real(a), y = to_real(b);
  if (x && y) return *x <=> *y;
  if (!a.text() || !b.text()) return std::nullopt;
  budget.step(std::min(a.text()->size(), b.text()->size()) / 64);
  return a.text()->str().compare(b.text()->str()) <=> 0;  // the order of UTF-8 is that of its code points
}

bool equal(const Value& a, const Value& b, Budget& budget) {
  if (const auto order = order_of(a, b, budget)) return *order == 0;
  if (a.list() && b.list()) {
    const List &left = *a.list(), &right = *b.list();
    return left.is_tuple == right.is_tuple &&
           std::equal(left.items.begin(), left.items.end(), right.items.begin(), right.items.end(),
                      [&](const Value& l, const Value& r) { return equal(l, r, budget); });
  }
  if (a.map() && b.map()) {
    const Map &left = *a.map(), &right = *b.map();
    budget.step(left.items.size() * right.items.size() / 8);
    return left.items.size() == right.items.size() &&
           std::all_of(left.items.begin(), left.items.end(), [&](const auto& each) {
             const Value* other = right.find(each.first.str());
             return other && equal(each.second, *other, budget);
           });
  }
  return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined()) ||
         (a.object() && a.object() == b.object());
}

}  // namespace

bool compares(std::string_view sign, const Value& a, const Value& b, Budget& budget) {
  if (sign == "in" || sign == "not in") return contains(b, a, budget) == (sign == "in");
  if (sign == "==" || sign == "!=") return equal(a, b, budget) == (sign == "==");
  const auto order = order_of(a, b, budget);
  require<ConfigError>(order.has_value(), "can not tell which is less: {} or {}", a.describe(), b.describe());
  return sign == "<" ? *order < 0 : sign == "<=" ? *order <= 0 : sign == ">" ? *order > 0 : *order >= 0;
}

Value binary(std::string_view sign, const Value& a, const Value& b, Budget& budget) {
  if (sign == "~" || (sign == "+" && a.text() && b.text())) {
    Text joined = to_text(a, budget);
    joined.append(to_text(b, budget));
    return joined;
  }
  const auto i = to_integer(a), j = to_integer(b);
  if (i && j) return of_integers(sign, *i, *j);
  if (sign == "+" && a.list() && b.list() && a.list()->is_tuple == b.list()->is_tuple) {
    std::vector<Value> items = elements_of(a, budget);
    const std::vector<Value> more = elements_of(b, budget);
    items.insert(items.end(), more.begin(), more.end());
    return Value::list(std::move(items), a.list()->is_tuple);
  }
  if (sign == "*" && a.text() && j) return repeated(*a.text(), *j, budget);
  if (sign == "*" && i && b.text()) return repeated(*b.text(), *i, budget);
  fail<ConfigError>("there is no {} {} {}", a.describe(), sign, b.describe());
}

Value attribute_of(const Value& value, std::string_view name) {
  require_defined(value, name);
  if (value.object()) {
    const Value* found = find(value.object()->attributes, name);
    require<ConfigError>(!value.object()->call, "{} has no attribute \"{}\"", value.describe(), name);
    return found ? *found : Value::undefined(name);
  }
  if (!value.map()) return Value::undefined(name);
  static constexpr std::array kMethods{"items", "keys",   "values", "get",       "pop",
                                       "copy",  "update", "clear",  "setdefault"};
  if (std::find(kMethods.begin(), kMethods.end(), name) != kMethods.end())
    return std::make_shared<Object>(Object{.what = "a method"});
  const Value* found = value.map()->find(name);
  return found ? *found : Value::undefined(name);
}

Value item_of(const Value& value, const Value& key, Budget& budget) {
  if (const Text* name = key.text()) {
    if (!value.map()) return attribute_of(value, name->str());
    budget.step(value.map()->items.size() / 8);
    const Value* found = value.map()->find(name->str());
    return found ? *found : attribute_of(value, name->str());
  }
  require_defined(value, "an element");
  const auto index = to_integer(key);
  if (!index || (!value.text() && !value.list())) return Value::undefined("an element");
  const auto bounds = character_bounds(value, budget);
  const auto size = static_cast<int64_t>(value.text() ? bounds.size() - 1 : value.list()->items.size());
  if (*index < -size || *index >= size) return Value::undefined("an element");
  const auto place = static_cast<size_t>(*index < 0 ? *index + size : *index);
  return value.list() ? value.list()->items[place] : value.text()->substr(bounds[place], bounds[place + 1]);
}

Value slice_of(const Value& value, const Value& begin, const Value& end, const Value& step, Budget& budget) {
  require_defined(value, "a slice");
  require<ConfigError>(value.text() || value.list(), "{} has no slices", value.describe());
  const auto bounds = character_bounds(value, budget);
  const auto size = static_cast<int64_t>(value.text() ? bounds.size() - 1 : value.list()->items.size());
  const auto number = [](const Value& given, int64_t fallback) {
    const auto integer = to_integer(given);
    require<ConfigError>(integer || given.is_undefined() || given.is_none(), "a slice has {}", given.describe());
    return integer.value_or(fallback);
  };
  const int64_t by = std::clamp<int64_t>(number(step, 1), -size - 1, size + 1);
  require<ConfigError>(by != 0, "a slice's step is 0");
  const int64_t least = by < 0 ? -1 : 0, most = by < 0 ? size - 1 : size;
  const auto edge = [&](const Value& given, int64_t fallback) {
    const int64_t at = number(given, fallback);
    return std::clamp(at < 0 && !given.is_undefined() && !given.is_none() ? at + size : at, least, most);
  };
  const int64_t first = edge(begin, by < 0 ? most : least), last = edge(end, by < 0 ? least : most);
  Text text;
  std::vector<Value> items;
  for (int64_t i = first; by < 0 ? i > last : i < last; i += by) {
    const auto place = static_cast<size_t>(i);
    budget.allocate(value.text() ? bounds[place + 1] - bounds[place] : sizeof(Value));
    if (value.text()) text.append(value.text()->substr(bounds[place], bounds[place + 1]));
    if (value.list()) items.push_back(value.list()->items[place]);
  }
  return value.text() ? Value(std::move(text)) : Value::list(std::move(items), value.list()->is_tuple);
}

}  // namespace nought::jinja
