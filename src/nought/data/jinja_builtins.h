// The functions, methods, filters and tests of Jinja programs: tables by name.
#pragma once

#include <ctime>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "nought/base/error.h"
#include "nought/data/jinja_value.h"

namespace nought::jinja {

/// A call of a builtin: x.name(...), x|name(...), x is name(...), or name(...) without an x.
struct Call {
  Budget& budget;
  const std::tm& now;
  Value self;
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named = {};
  std::vector<Value> bound = {};  // by the builtin's parameters; undefined where nothing is given

  const Value& operator[](size_t parameter) const { return bound[parameter]; }
};

struct Builtin {
  std::string_view name;
  std::string_view parameters;  // names with spaces between; "*": any
  Value (*run)(Call& call);
};
using Builtins = std::span<const Builtin>;

Builtins functions();
Builtins methods();
Builtins filters();
Builtins tests();
/// Those of methods() and filters() that make text of text.
Builtins text_methods();
Builtins text_filters();

/// The builtin of that name, or null.
const Builtin* find_builtin(Builtins all, std::string_view name);
/// Binds the arguments and runs it. ConfigError.
Value run_builtin(const Builtin& builtin, Call call);

/// Python's lower() and upper(), one character for each.
Text lower_of(const Text& text);
Text upper_of(const Text& text);

/// What the words after a dot or in brackets give; undefined if there is nothing. A mapping's own methods hide its keys
/// after a dot, as in Python.
Value attribute_of(const Value& value, std::string_view name);
Value item_of(const Value& value, const Value& key, Budget& budget);
/// Python's slices.
Value slice_of(const Value& value, const Value& begin, const Value& end, const Value& step, Budget& budget);
/// a + b and the others; `in` and `not in` are comparisons.
Value binary(std::string_view name, const Value& a, const Value& b, Budget& budget);
bool contains(const Value& in, const Value& what, Budget& budget);

/// Python's json.dumps().
struct JsonStyle {
  int indent = -1;  // -1: on one line
  bool ascii = false, sorted = false;
  std::string comma = ", ", colon = ": ";
};
Text to_json(const Value& value, const JsonStyle& style, Budget& budget);

/// What raise_exception() throws: the program refuses what it was given.
class Refusal final : public ConfigError {
 public:
  using ConfigError::ConfigError;
};

/// namespace(): what a set may change.
class Namespace final : public Object {
 public:
  std::string_view what() const override { return "a namespace"; }
  Value attribute(std::string_view name) const override;
  void set(std::string_view name, Value value);
  void clear() { items_.clear(); }

 private:
  std::vector<std::pair<std::string, Value>> items_;
};

}  // namespace nought::jinja
