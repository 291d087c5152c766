// The values of a Jinja program: those of Python that chat templates handle.
//
// Design goals: a Text knows which of its bytes come from the messages and which the program wrote, through every cut
// and every join, so that a message cannot forge a marker. What a program makes is charged to its Budget. Values do not
// change, objects excepted, so that they are shared freely. Non-goals: integers beyond 64 bits, keys of mappings that
// are not strings.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace nought::jinja {

/// UTF-8 with flags on its bytes.
class Text {
 public:
  enum Flag : char {
    kData = 1,   // it comes from the values that the program was given
    kTarget = 2  // it stands in a {% generation %} block
  };

  Text() = default;
  explicit Text(std::string_view text, char flags = 0) : text_(text), flags_(text.size(), flags) {}

  const std::string& str() const { return text_; }
  size_t size() const { return text_.size(); }
  bool empty() const { return text_.empty(); }
  char flags(size_t byte) const { return flags_[byte]; }

  void append(const Text& other) {
    text_ += other.text_;
    flags_ += other.flags_;
  }
  void append(std::string_view text, char flags = 0) { append(Text(text, flags)); }
  Text substr(size_t begin, size_t end) const;
  /// Gives all bytes a flag.
  void mark(Flag flag) {
    for (char& each : flags_) each |= flag;
  }

 private:
  std::string text_, flags_;
};

struct List;
struct Map;
struct Object;

class Value {
 public:
  struct Undefined {
    std::shared_ptr<const std::string> name;  // what was looked for
  };
  struct None {};

  Value() = default;
  Value(None) : any_(None()) {}
  Value(bool value) : any_(value) {}
  Value(int64_t value) : any_(value) {}
  Value(double value) : any_(value) {}
  Value(Text text) : any_(std::make_shared<const Text>(std::move(text))) {}
  Value(const char*) = delete;  // it would be a boolean
  Value(std::shared_ptr<Object> object) : any_(std::move(object)) {}
  static Value undefined(std::string_view name);
  /// ConfigError if it is nested too deeply, as for every list and mapping.
  static Value list(std::vector<Value> items, bool is_tuple = false);
  static Value map(std::vector<std::pair<Text, Value>> items);

  bool is_undefined() const { return std::holds_alternative<Undefined>(any_); }
  bool is_none() const { return std::holds_alternative<None>(any_); }
  /// The value of that type, or null.
  const bool* boolean() const { return std::get_if<bool>(&any_); }
  const int64_t* integer() const { return std::get_if<int64_t>(&any_); }
  const double* real() const { return std::get_if<double>(&any_); }
  const Text* text() const { return pointee<const Text>(); }
  const List* list() const { return pointee<const List>(); }
  const Map* map() const { return pointee<const Map>(); }
  Object* object() const { return pointee<Object>(); }

  bool truth() const;
  /// For messages: "the string \"abc\"", "a list", "undefined".
  std::string describe() const;

 private:
  template <class T>
  T* pointee() const {
    const auto* shared = std::get_if<std::shared_ptr<T>>(&any_);
    return shared ? shared->get() : nullptr;
  }

  std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const Text>, std::shared_ptr<const List>,
               std::shared_ptr<const Map>, std::shared_ptr<Object>>
      any_;
};

struct List {
  std::vector<Value> items;
  bool is_tuple = false;
  int depth = 1;
};

/// Keeps the order of its keys.
struct Map {
  std::vector<std::pair<Text, Value>> items;
  int depth = 1;
  /// The value of a key, or null.
  const Value* find(std::string_view key) const;
};

/// Names and their values: variables, attributes, arguments.
using Variables = std::vector<std::pair<std::string, Value>>;
Value* find(Variables& variables, std::string_view name);
void set(Variables& variables, std::string_view name, Value value);

struct Arguments {
  std::vector<Value> positional;
  Variables named = {};
};
struct Machine;

/// What is no plain value: a namespace, the variable "loop", a function or a macro.
struct Object {
  std::string_view what;      // for messages: "a namespace"
  Variables attributes = {};  // of the first two
  std::function<Value(Machine&, Arguments)> call = {};
};

/// What a program may still do. ConfigError if that is used up.
class Budget {
 public:
  Budget(int64_t steps, int64_t bytes) : steps_(steps), bytes_(bytes) {}
  void step(size_t count = 1);
  /// Before so much is allocated. Nothing is given back. A byte of a text counts once, together with its flags.
  void allocate(size_t bytes);

 private:
  int64_t steps_, bytes_;
};

/// The value of an integer or a boolean, which Python counts as one; nothing for others.
std::optional<int64_t> to_integer(const Value& value);
/// The same for any number.
std::optional<double> to_real(const Value& value);

/// Whether a == b, a < b, a in b, and so on, as Python has it. ConfigError for what has no order or no elements.
bool compares(std::string_view sign, const Value& a, const Value& b, Budget& budget);

/// Python's str(). What it writes of lists and mappings is data, and so is all JSON.
Text to_text(const Value& value, Budget& budget);
/// Python's json.dumps(). compact: without white space.
Text to_json(const Value& value, std::optional<int> indent, bool ascii, bool compact, Budget& budget);

/// The elements that a for loop visits: of a list, the keys of a mapping, the characters of a text, none of what is
/// undefined. ConfigError for others.
std::vector<Value> elements_of(const Value& value, Budget& budget);
/// Where each character of a text begins, and where the last one ends; nothing for others.
std::vector<size_t> character_bounds(const Value& value, Budget& budget);
/// Where a part stands in a text, at or behind `from`; the text's size if it does not.
size_t find_part(std::string_view text, std::string_view part, size_t from = 0);

/// What the words after a dot or in brackets give; undefined if there is nothing. A mapping's own methods hide its keys
/// after a dot, as in Python.
Value attribute_of(const Value& value, std::string_view name);
Value item_of(const Value& value, const Value& key, Budget& budget);
/// Python's slices.
Value slice_of(const Value& value, const Value& begin, const Value& end, const Value& step, Budget& budget);
/// a + b and the others.
Value binary(std::string_view sign, const Value& a, const Value& b, Budget& budget);

}  // namespace nought::jinja
