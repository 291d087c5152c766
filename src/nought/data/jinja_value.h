// The values of a Jinja program: those of Python that chat templates handle.
//
// Design goals: a Text knows which of its stretches come from the messages and which the program wrote, through every
// cut and every join, so that a message cannot forge a marker. What a program makes is charged to its Budget. Values do
// not change, namespaces excepted, so that they are shared freely. Non-goals: integers beyond 64 bits, keys of mappings
// that are not strings.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace nought::jinja {

/// UTF-8 with flags on its stretches.
class Text {
 public:
  enum Flag : uint8_t {
    kData = 1,   // it comes from the values that the program was given
    kTarget = 2  // it stands in a {% generation %} block
  };
  struct Stretch {
    size_t end;  // where it ends; it begins where the one before ends
    uint8_t flags;
  };

  Text() = default;
  explicit Text(std::string_view text, uint8_t flags = 0) { append(text, flags); }

  const std::string& str() const { return text_; }
  size_t size() const { return text_.size(); }
  bool empty() const { return text_.empty(); }
  const std::vector<Stretch>& stretches() const { return stretches_; }
  /// The flags of all stretches.
  uint8_t flags() const;

  void append(std::string_view text, uint8_t flags);
  void append(const Text& other);
  Text substr(size_t begin, size_t end) const;
  /// The text with that flag everywhere.
  Text with(Flag flag) const;

 private:
  std::string text_;
  std::vector<Stretch> stretches_;
};

class Value;

/// Something that is no plain value: a namespace, a macro, the loop.
class Object {
 public:
  virtual ~Object() = default;
  virtual std::string_view what() const = 0;
  /// An attribute; undefined if there is none.
  virtual Value attribute(std::string_view name) const = 0;
  /// How deeply the values in it are nested, unless something else takes them apart.
  virtual int depth() const { return 0; }
};

struct List;
struct Map;

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
  std::shared_ptr<Object> shared_object() const { return std::get<std::shared_ptr<Object>>(any_); }
  bool same_object(const Value& other) const { return object() && object() == other.object(); }

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

/// What a program may still do. ConfigError if that is used up.
class Budget {
 public:
  Budget(int64_t steps, int64_t bytes) : steps_(steps), bytes_(bytes) {}
  void step(size_t count = 1);
  /// Before so much is allocated. Nothing is given back.
  void allocate(size_t bytes);

 private:
  int64_t steps_, bytes_;
};

/// The value of an integer or a boolean, which Python counts as one; nothing else has one.
bool to_integer(const Value& value, int64_t& out);
/// The same for any number.
bool to_real(const Value& value, double& out);

/// Python's ==.
bool equal(const Value& a, const Value& b, Budget& budget);
/// Less than 0, 0 or more: Python's order of numbers, of strings, and of lists of those. ConfigError for others.
int compare(const Value& a, const Value& b, Budget& budget);

/// Python's str().
Text to_text(const Value& value, Budget& budget);
/// Python's repr() of a number.
std::string repr_of(double value);
/// The elements that a for loop visits: of a list, the keys of a mapping, the characters of a text, none of what is
/// undefined. ConfigError for others.
std::vector<Value> elements_of(const Value& value, Budget& budget);

/// A text's characters by their number.
class Characters {
 public:
  Characters(const Text& text, Budget& budget);
  size_t size() const { return starts_.size() - 1; }
  Text at(size_t i) const { return cut(i, i + 1); }
  Text cut(size_t begin, size_t end) const { return text_.substr(starts_[begin], starts_[end]); }
  /// The number of the character that begins at a byte.
  size_t number_of(size_t byte) const;

 private:
  const Text& text_;
  std::vector<size_t> starts_;  // and the end
};

}  // namespace nought::jinja
