#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "nought/base/error.h"
#include "nought/data/jinja_builtins.h"
#include "nought/data/unicode.h"

namespace nought::jinja {

namespace {

/// Python's // and %, which round towards minus infinity.
int64_t floor_divide(int64_t a, int64_t b) { return a / b - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0); }

Value of_integers(std::string_view name, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflows = false;
  if (name == "+") overflows = __builtin_add_overflow(a, b, &result);
  if (name == "-") overflows = __builtin_sub_overflow(a, b, &result);
  if (name == "*") overflows = __builtin_mul_overflow(a, b, &result);
  if (name == "/" || name == "//" || name == "%") {
    require<ConfigError>(b != 0, "{} {} 0 divides by zero", a, name);
    if (name == "/") return static_cast<double>(a) / static_cast<double>(b);
    if (b == -1) return name == "%" ? Value(int64_t{0}) : of_integers("-", 0, a);
    result = floor_divide(a, b);
    if (name == "%") result = a - result * b;
  }
  if (name == "**") {
    if (b < 0) return std::pow(static_cast<double>(a), static_cast<double>(b));
    result = b == 0 || a == 1 ? 1 : a == -1 ? (b % 2 == 0 ? 1 : -1) : a;
    if (a != 0 && a != 1 && a != -1)
      for (int64_t i = 1; i < b && !overflows; ++i) overflows = __builtin_mul_overflow(result, a, &result);
  }
  require<ConfigError>(!overflows, "{} {} {} has more than 64 bits", a, name, b);
  return result;
}

Value of_reals(std::string_view name, double a, double b) {
  if (name == "+") return a + b;
  if (name == "-") return a - b;
  if (name == "*") return a * b;
  if (name == "**") return std::pow(a, b);
  require<ConfigError>(b != 0, "{} {} 0 divides by zero", repr_of(a), name);
  if (name == "/") return a / b;
  return name == "//" ? std::floor(a / b) : a - std::floor(a / b) * b;
}

Value repeated(const Value& value, int64_t times, Budget& budget) {
  const auto count = static_cast<size_t>(std::max<int64_t>(times, 0));
  const size_t size = value.text() ? value.text()->size() : value.list()->items.size() * sizeof(Value);
  size_t bytes = 0;
  require<ConfigError>(!__builtin_mul_overflow(size, count, &bytes), "{} times {} bytes are too many", count, size);
  budget.allocate(bytes);
  Text text;
  std::vector<Value> items;
  for (size_t i = 0; i < count && size > 0; ++i) {
    if (value.text()) text.append(*value.text());
    if (value.list()) items.insert(items.end(), value.list()->items.begin(), value.list()->items.end());
  }
  return value.text() ? Value(std::move(text)) : Value::list(std::move(items), value.list()->is_tuple);
}

/// Python's "..." % values, of %s, %r, %d, %i, %f with a precision, and %%.
Value formatted(const Text& pattern, const Value& values, Budget& budget) {
  const bool many = values.list() && values.list()->is_tuple;
  size_t used = 0, done = 0;
  Text out;
  for (size_t at = pattern.str().find('%'); at != std::string::npos; at = pattern.str().find('%', done)) {
    out.append(pattern.substr(done, at));
    const size_t kind = std::min(pattern.str().find_first_not_of(".0123456789", at + 1), pattern.size());
    const std::string precision = pattern.str().substr(at + 1, kind - at - 1);
    const char letter = kind < pattern.size() ? pattern.str()[kind] : '\0';
    done = kind + 1;
    if (letter == '%') {
      out.append("%", 0);
      continue;
    }
    require<ConfigError>(many ? used < values.list()->items.size() : used == 0, "too few values for \"%\"");
    const Value& value = many ? values.list()->items[used] : values;
    ++used;
    double real = 0;
    if (letter == 's' && precision.empty()) {
      out.append(to_text(value, budget));
    } else if ((letter == 'd' || letter == 'i') && precision.empty() && to_real(value, real)) {
      out.append(fmt::format("{:.0f}", std::trunc(real)), 0);
    } else {
      const bool digits = precision.empty() || (precision.size() == 2 && precision[0] == '.');
      require<ConfigError>(letter == 'f' && digits && to_real(value, real), "can not format {} by \"%{}{}\"",
                           value.describe(), precision, letter);
      out.append(fmt::format("{:.{}f}", real, precision.empty() ? 6 : precision[1] - '0'), 0);
    }
    budget.allocate(out.size() / 16);
  }
  require<ConfigError>(!many || used == values.list()->items.size(), "too many values for \"%\"");
  out.append(pattern.substr(std::min(done, pattern.size()), pattern.size()));
  return out;
}

bool is_own_method(std::string_view name) {
  return name == "items" || name == "keys" || name == "values" || name == "get" || name == "pop" || name == "update" ||
         name == "copy" || name == "clear" || name == "setdefault";
}

/// A method that is not called.
class BoundMethod final : public Object {
 public:
  std::string_view what() const override { return "a method"; }
  Value attribute(std::string_view name) const override { return Value::undefined(name); }
};

void require_defined(const Value& value, std::string_view wanted) {
  require<ConfigError>(!value.is_undefined(), "can not look up \"{}\" in {}", wanted, value.describe());
}

}  // namespace

Value binary(std::string_view name, const Value& a, const Value& b, Budget& budget) {
  if (name == "~") {
    Text joined = to_text(a, budget);
    joined.append(to_text(b, budget));
    return joined;
  }
  int64_t i = 0, j = 0;
  const bool left = to_integer(a, i), right = to_integer(b, j);
  if (left && right) return of_integers(name, i, j);
  double x = 0, y = 0;
  if (to_real(a, x) && to_real(b, y)) return of_reals(name, x, y);
  if (name == "+" && a.text() && b.text()) return binary("~", a, b, budget);
  if (name == "+" && a.list() && b.list() && a.list()->is_tuple == b.list()->is_tuple) {
    std::vector<Value> items = elements_of(a, budget);
    const std::vector<Value> more = elements_of(b, budget);
    items.insert(items.end(), more.begin(), more.end());
    return Value::list(std::move(items), a.list()->is_tuple);
  }
  if (name == "*" && right && (a.text() || a.list())) return repeated(a, j, budget);
  if (name == "*" && left && (b.text() || b.list())) return repeated(b, i, budget);
  if (name == "%" && a.text()) return formatted(*a.text(), b, budget);
  fail<ConfigError>("there is no {} {} {}", a.describe(), name, b.describe());
}

bool contains(const Value& in, const Value& what, Budget& budget) {
  if (in.text()) {
    const Text* part = what.text();
    require<ConfigError>(part, "a string can not contain {}", what.describe());
    budget.step(in.text()->size() / 64);
    return memmem(in.text()->str().data(), in.text()->size(), part->str().data(), part->size()) != nullptr;
  }
  if (in.map()) {
    budget.step(in.map()->items.size() / 8);
    return what.text() && in.map()->find(what.text()->str());
  }
  const std::vector<Value> items = elements_of(in, budget);
  return std::any_of(items.begin(), items.end(), [&](const Value& each) { return equal(each, what, budget); });
}

Value attribute_of(const Value& value, std::string_view name) {
  require_defined(value, name);
  if (value.object()) return value.object()->attribute(name);
  if (!value.map()) return Value::undefined(name);
  if (is_own_method(name)) return Value(std::shared_ptr<Object>(std::make_shared<BoundMethod>()));
  const Value* found = value.map()->find(name);
  return found ? *found : Value::undefined(name);
}

Value item_of(const Value& value, const Value& key, Budget& budget) {
  if (const Text* name = key.text()) {
    require_defined(value, name->str());
    if (value.map()) budget.step(value.map()->items.size() / 8);
    const Value* found = value.map() ? value.map()->find(name->str()) : nullptr;
    return found ? *found : attribute_of(value, name->str());
  }
  require_defined(value, "an element");
  int64_t index = 0;
  if (!to_integer(key, index) || (!value.list() && !value.text())) return Value::undefined("an element");
  const auto at = [&](size_t size) -> std::optional<size_t> {
    const int64_t place = index < 0 ? index + static_cast<int64_t>(size) : index;
    return place >= 0 && place < static_cast<int64_t>(size) ? std::optional(static_cast<size_t>(place)) : std::nullopt;
  };
  if (value.list()) {
    const auto place = at(value.list()->items.size());
    return place ? value.list()->items[*place] : Value::undefined("an element");
  }
  const Characters characters(*value.text(), budget);
  const auto place = at(characters.size());
  return place ? Value(characters.at(*place)) : Value::undefined("an element");
}

Value slice_of(const Value& value, const Value& begin, const Value& end, const Value& step, Budget& budget) {
  require_defined(value, "a slice");
  require<ConfigError>(value.text() || value.list(), "{} has no slices", value.describe());
  std::optional<Characters> characters;
  if (value.text()) characters.emplace(*value.text(), budget);
  const auto size = static_cast<int64_t>(characters ? characters->size() : value.list()->items.size());
  int64_t by = 1;
  require<ConfigError>(to_integer(step, by) || step.is_undefined() || step.is_none(), "a slice's step is {}",
                       step.describe());
  require<ConfigError>(by != 0, "a slice's step is 0");
  by = std::clamp<int64_t>(by, -size - 1, size + 1);
  const auto bound = [&](const Value& given, int64_t fallback) {
    int64_t at = 0;
    const bool is_given = to_integer(given, at);
    require<ConfigError>(is_given || given.is_undefined() || given.is_none(), "a slice begins or ends at {}",
                         given.describe());
    if (!is_given) return fallback;
    at = std::clamp<int64_t>(at, -size - 1, size + 1);
    if (at < 0) at += size;
    return std::clamp<int64_t>(at, by < 0 ? -1 : 0, by < 0 ? size - 1 : size);
  };
  const int64_t first = bound(begin, by < 0 ? size - 1 : 0), last = bound(end, by < 0 ? -1 : size);
  if (characters && by == 1)
    return characters->cut(static_cast<size_t>(first), static_cast<size_t>(std::max(first, last)));
  Text text;
  std::vector<Value> kept;
  for (int64_t i = first; by < 0 ? i > last : i < last; i += by) {
    budget.allocate(sizeof(Value));
    if (characters) text.append(characters->at(static_cast<size_t>(i)));
    if (!characters) kept.push_back(value.list()->items[static_cast<size_t>(i)]);
  }
  return characters ? Value(std::move(text)) : Value::list(std::move(kept), value.list()->is_tuple);
}

Value Namespace::attribute(std::string_view name) const {
  for (const auto& [key, value] : items_)
    if (key == name) return value;
  return Value::undefined(name);
}

void Namespace::set(std::string_view name, Value value) {
  for (auto& [key, old] : items_)
    if (key == name) return void(old = std::move(value));
  items_.emplace_back(name, std::move(value));
}

}  // namespace nought::jinja
