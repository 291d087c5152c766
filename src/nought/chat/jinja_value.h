// The values of a Jinja program: those of Python that chat templates handle.
//
// Design goals: a Text knows which of its bytes come from the messages and which the program wrote, through every cut
// and every join, so that a message cannot forge a marker. What a program reads, copies or makes is charged to its
// Budget. Values do not change, namespaces excepted, so that they are shared freely. Non-goals: integers beyond 64
// bits, arithmetic of real numbers, keys of mappings that are not strings, lists or mappings of namespaces.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace nought::jinja {

/// What is known of a character, above its code point.
enum Flag : char32_t {
  kData = 1 << 24,   // it comes from the values that the program was given
  kTarget = 1 << 25  // it stands in a {% generation %} block
};
constexpr char32_t code_point(char32_t character) { return character & 0xFFFFFF; }

/// Compares characters without their flags.
struct CharacterTraits : std::char_traits<char32_t> {
  static bool eq(char32_t a, char32_t b) { return code_point(a) == code_point(b); }
  static bool lt(char32_t a, char32_t b) { return code_point(a) < code_point(b); }
  static int compare(const char32_t* a, const char32_t* b, size_t count);
  static const char32_t* find(const char32_t* text, size_t count, const char32_t& wanted);
};
/// Characters with their flags.
using Text = std::basic_string<char32_t, CharacterTraits>;
/// The characters of valid UTF-8, all with these flags, and back.
Text from_utf8(std::string_view utf8, char32_t flags = 0);
std::string to_utf8(const Text& text);

/// What a program writes: UTF-8.
class Rendered {
 public:
  const std::string& str() const { return text_; }
  size_t size() const { return text_.size(); }
  /// Flags of the character of that byte: kData, kTarget.
  char32_t flags(size_t byte) const { return static_cast<char32_t>(flags_[byte]) << 24; }
  Text text() const;
  /// The characters, with more flags.
  void write(const Text& text, char32_t more_flags = 0);

 private:
  std::string text_, flags_;
};

struct Items;

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
  Value(Text text) : any_(std::make_shared<Text>(std::move(text))) {}
  Value(const char*) = delete;  // it would be a boolean
  /// ConfigError if they are nested too deeply, or hold a namespace, which could then hold itself.
  Value(Items items);
  static Value undefined(std::string_view name);
  static Value list(std::vector<Value> values, bool is_tuple = false);

  /// The name of its type, as tests have it, or "list", "tuple", "namespace".
  std::string_view type() const;
  bool is_undefined() const { return std::holds_alternative<Undefined>(any_); }
  bool is_none() const { return std::holds_alternative<None>(any_); }
  /// The value of that type, or null.
  const bool* boolean() const { return std::get_if<bool>(&any_); }
  const int64_t* integer() const { return std::get_if<int64_t>(&any_); }
  const double* real() const { return std::get_if<double>(&any_); }
  const Text* text() const;
  Text taken_text() &&;        // without a copy, if no other value shares it
  const Items* items() const;  // any of the next three
  const Items* list() const;   // a tuple too
  const Items* map() const;
  Items* space() const;

  bool truth() const;
  /// For messages: "the string \"abc\"", "a list", "undefined".
  std::string describe() const;

 private:
  std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<Text>, std::shared_ptr<Items>> any_;
};

/// What a program may still do. A step is a part of it that runs, or 4 characters or 16 bytes that it reads, copies or
/// makes. As nothing is given back, steps bound memory too.
class Budget {
 public:
  explicit Budget(size_t steps) : limit_(steps), steps_(steps) {}
  /// ConfigError if that is used up.
  void step(size_t count = 1);
  void touch(const Text& text) { step(1 + text.size() / 4); }
  /// Before a look-up.
  void look_up(const Items& in, const Text& key);
  /// Before a search for any of so many characters, or for all of them.
  void search(const Text& text, const Text& wanted) { step(1 + text.size() / 4 + text.size() * wanted.size() / 64); }

 private:
  size_t limit_, steps_;
};

/// A list, a tuple, or what has keys, in their order: a mapping, or a namespace, which alone can change.
struct Items {
  enum Kind : uint8_t { kList, kTuple, kMap, kSpace };
  Kind kind = kList;
  std::vector<Value> values = {};
  std::vector<Value> keys = {};  // strings
  int depth = 1;

  /// The value of a key, or null.
  Value* find(const Text& key);
  const Value* find(const Text& key) const { return const_cast<Items*>(this)->find(key); }
  void set(const Value& key, const Value& value);
};

/// The value of an integer or a boolean, which Python counts as one; nothing for others.
std::optional<int64_t> to_integer(const Value& value);
/// The value of any number as a real one; nothing for others.
std::optional<double> to_real(const Value& value);

/// a + b, a == b, a in b, and so on, as Python has it. ConfigError for what there is not.
Value binary(std::string_view sign, Value a, const Value& b, Budget& budget);

/// Python's str(). What it writes of lists and mappings is data.
Text to_text(const Value& value, Budget& budget);
/// How Python's json.dumps() writes.
struct JsonStyle {
  bool ascii = false;
  std::optional<int> indent = {};
  std::string comma = ", ", colon = ": ";
};
/// The value as JSON, all of it data.
Text to_json(const Value& value, const JsonStyle& style, Budget& budget);

/// The elements that a for loop visits: of a list, the keys of a mapping, the characters of a text, none of what is
/// undefined. ConfigError for others.
std::vector<Value> elements_of(const Value& value, Budget& budget);
/// What a name after a dot or a value in brackets gives; undefined if there is nothing.
Value item_of(const Value& value, const Value& key, Budget& budget);
/// Python's slices.
Value slice_of(const Value& value, const Value& begin, const Value& end, const Value& step, Budget& budget);

}  // namespace nought::jinja
