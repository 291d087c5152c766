// Reads config structs from JSON, writes them as JSON and documents their keys, all from one list of members per
// struct:
//
//   struct Training {
//     Setting<int64_t> max_steps{-1};
//     template <class V> void visit(V& v) { v("max_steps", max_steps, "updates to make; -1 = by num_train_epochs"); }
//   };
//
// Members: bool, integers, floating point, std::string, Json (taken as it is), std::vector<T>, std::optional<T>,
// Setting<T>, Auto<T>, enums with an EnumNames, and structs with a visit(). An enum's names stand in one place:
//
//   template <> struct EnumNames<Color> { static constexpr std::array<std::pair<Color, std::string_view>, 2>
//   value{...}; };
#pragma once

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "nought/base/error.h"
#include "nought/base/json.h"
#include "nought/base/text.h"

namespace nought {

/// A value that remembers whether the user gave it. null counts as not given.
template <class T>
struct Setting {
  T value{};
  bool given = false;
  bool has_default = false;  // `value` began as a default; otherwise the key's help says what holds

  Setting() = default;
  Setting(T fallback) : value(std::move(fallback)), has_default(true) {}
};

/// A value that may be written as "auto". It is filled in when the run is resolved.
template <class T>
struct Auto {
  enum class State {
    unset,      // the key is absent or null
    automatic,  // the key says "auto"
    given       // the key has a value, which is in `value`
  };
  T value{};
  State state = State::unset;

  bool given() const { return state == State::given; }
  bool automatic() const { return state == State::automatic; }
};

template <class E>
struct EnumNames;

/// The name of a value of an enum with EnumNames.
template <class E>
constexpr std::string_view enum_name(E value) {
  for (const auto& [known, name] : EnumNames<E>::value)
    if (known == value) return name;
  return "?";
}

/// The value that has this name, if any.
template <class E>
constexpr std::optional<E> enum_named(std::string_view name) {
  for (const auto& [value, known] : EnumNames<E>::value)
    if (known == name) return value;
  return std::nullopt;
}
/// The names of all values.
template <class E>
std::vector<std::string> enum_names() {
  std::vector<std::string> names;
  for (const auto& [value, name] : EnumNames<E>::value) names.emplace_back(name);
  return names;
}

/// One key of a config struct, for help and documentation.
struct KeyInfo {
  std::string path;      // "training.max_steps"
  std::string type;      // "an integer"
  std::string fallback;  // "-1"; "" if there is none
  std::string help;
};

namespace visiting {

struct Nobody {
  template <class T>
  void operator()(const char*, T&, const char*) {}
};
template <class T>
concept Struct = requires(T t, Nobody v) {
  t.visit(v);
};
template <class T>
concept Enum = std::is_enum_v<T>;
template <class T>
concept Integer = std::integral<T> && !std::same_as<T, bool>;

template <class T>
struct Wrapped : std::false_type {};
template <class T>
struct Wrapped<Setting<T>> : std::true_type {};
template <class T>
struct Wrapped<Auto<T>> : std::true_type {};
template <class T>
struct Wrapped<std::optional<T>> : std::true_type {};

template <class T>
struct List : std::false_type {};
template <class T>
struct List<std::vector<T>> : std::true_type {};

template <class T>
struct Tag {};
template <class T>
std::string type_name(Tag<Setting<T>>);
template <class T>
std::string type_name(Tag<Auto<T>>);
template <class T>
std::string type_name(Tag<std::optional<T>>);
template <class T>
std::string type_name(Tag<std::vector<T>>);

/// What a value of type T looks like, for messages and help: "an integer", "one of linear, cosine".
template <class T>
std::string type_name(Tag<T>) {
  if constexpr (std::same_as<T, bool>)
    return "true or false";
  else if constexpr (Integer<T>)
    return "an integer";
  else if constexpr (std::floating_point<T>)
    return "a number";
  else if constexpr (std::same_as<T, std::string>)
    return "a string";
  else if constexpr (std::same_as<T, Json>)
    return "any value";
  else if constexpr (Struct<T>)
    return "an object";
  else {
    std::string names;
    for (const auto& [value, name] : EnumNames<T>::value)
      names += (names.empty() ? "one of " : ", ") + std::string(name);
    return names;
  }
}
template <class T>
std::string type_name(Tag<Setting<T>>) {
  return type_name(Tag<T>());
}
template <class T>
std::string type_name(Tag<Auto<T>>) {
  return type_name(Tag<T>()) + " or \"auto\"";
}
template <class T>
std::string type_name(Tag<std::optional<T>>) {
  return type_name(Tag<T>()) + " or null";
}
template <class T>
std::string type_name(Tag<std::vector<T>>) {
  return "a list (each " + type_name(Tag<T>()) + ")";
}

/// Reads one JSON value, at `path` of the configuration, into a C++ value.
struct Reader {
  const Origins& origins;

  template <class T>
  [[noreturn]] void fail_type(const Json& found, std::string_view path) const {
    if constexpr (Enum<T>) {
      if (found.is_string()) fail_name<T>(found, path);
    }
    fail<ConfigError>("{}: expected {}, found {}", origins.place(path), type_name(Tag<T>()), describe_json(found));
  }

  template <Enum T>
  [[noreturn]] void fail_name(const Json& found, std::string_view path) const {
    fail<ConfigError>("{}: expected {}, found {}{}", origins.place(path), type_name(Tag<T>()), describe_json(found),
                      did_you_mean(found.get<std::string>(), enum_names<T>()));
  }

  template <class T>
  void read(const Json& json, T& out, const std::string& path) const {
    if constexpr (std::same_as<T, Json>) {
      out = json;
    } else if constexpr (std::same_as<T, bool>) {
      if (!json.is_boolean()) fail_type<T>(json, path);
      out = json.get<bool>();
    } else if constexpr (Integer<T>) {
      read_integer(json, out, path);
    } else if constexpr (std::floating_point<T>) {
      if (!json.is_number()) fail_type<T>(json, path);
      out = json.get<T>();
      if (out == kJsonInfinity) out = std::numeric_limits<T>::infinity();
    } else if constexpr (std::same_as<T, std::string>) {
      if (!json.is_string()) fail_type<T>(json, path);
      out = json.get<std::string>();
    } else if constexpr (Enum<T>) {
      for (const auto& [value, name] : EnumNames<T>::value)
        if (json == name) return void(out = value);
      fail_type<T>(json, path);
    } else if constexpr (List<T>::value) {
      if (!json.is_array()) fail_type<T>(json, path);
      out.clear();
      for (const Json& item : json) {
        const std::string item_path = fmt::format("{}[{}]", path, out.size());
        read(item, out.emplace_back(), item_path);
      }
    } else {
      static_assert(Struct<T>, "a config member must be one of the types listed at the top of this file");
      read_struct(json, out, path);
    }
  }

  template <class T>
  void read(const Json& json, Setting<T>& out, const std::string& path) const {
    out.given = !json.is_null();
    if (out.given) read(json, out.value, path);
  }
  template <class T>
  void read(const Json& json, std::optional<T>& out, const std::string& path) const {
    out.reset();
    if (!json.is_null()) read(json, out.emplace(), path);
  }
  template <class T>
  void read(const Json& json, Auto<T>& out, const std::string& path) const {
    using State = typename Auto<T>::State;
    out.state = json.is_null() ? State::unset : json == "auto" ? State::automatic : State::given;
    if (json.is_string() && !out.automatic() && !std::same_as<T, std::string> && !std::is_enum_v<T>)
      fail_type<Auto<T>>(json, path);
    if (out.given()) read(json, out.value, path);
  }

  /// 5e8 is an integer too: DeepSpeed's users write bucket sizes so. Infinity is the largest: accelerate's users write
  /// steps_per_print so.
  template <Integer T>
  void read_integer(const Json& json, T& out, const std::string& path) const {
    int64_t whole = 0;
    if (json.is_number_integer()) {
      whole = json.get<int64_t>();
    } else {
      const double value = json.is_number() ? json.get<double>() : 0.5;
      if (value == kJsonInfinity) return void(out = std::numeric_limits<T>::max());
      if (std::abs(value) > 9e18 || value != std::floor(value)) fail_type<T>(json, path);
      whole = static_cast<int64_t>(value);
    }
    require<ConfigError>(std::in_range<T>(whole) && !(json.is_number_unsigned() && whole < 0), "{}: {} is out of range",
                         origins.place(path), json.dump());
    out = static_cast<T>(whole);
  }

  template <Struct T>
  void read_struct(const Json& json, T& out, const std::string& path) const;
};

struct MemberReader {
  const Reader& reader;
  const Json& json;
  const std::string& path;
  std::vector<std::string> names{};

  template <class T>
  void operator()(const char* key, T& member, const char*) {
    names.emplace_back(key);
    const auto it = json.find(key);
    if (it != json.end() && !it->is_null()) reader.read(*it, member, join_path(path, key));  // null: the default
  }
};

template <Struct T>
void Reader::read_struct(const Json& json, T& out, const std::string& path) const {
  if (!json.is_object()) fail_type<T>(json, path);
  MemberReader members{*this, json, path};
  out.visit(members);
  for (const auto& [key, value] : json.items())
    if (std::find(members.names.begin(), members.names.end(), key) == members.names.end())
      fail<ConfigError>("{}: unknown key{}", origins.place(join_path(path, key)), did_you_mean(key, members.names));
}

template <class T>
Json write(T& value);

struct MemberWriter {
  Json& json;

  template <class T>
  void operator()(const char* key, T& member, const char*) {
    Json value = write(member);
    const bool nothing = value.is_null() || (Struct<T> && value.empty());
    if (!nothing) json[key] = std::move(value);
  }
};

/// The JSON of a value; null where nothing was given.
template <class T>
Json write(T& value) {
  if constexpr (Struct<T>) {
    Json json = Json::object();
    MemberWriter members{json};
    value.visit(members);
    return json;
  } else if constexpr (Enum<T>) {
    for (const auto& [candidate, name] : EnumNames<T>::value)
      if (candidate == value) return name;
    return nullptr;
  } else if constexpr (List<T>::value) {
    Json json = Json::array();
    for (auto& item : value) json.push_back(write(item));
    return json;
  } else if constexpr (requires { value.automatic(); }) {
    return value.automatic() ? Json("auto") : value.given() ? write(value.value) : Json();
  } else if constexpr (requires { value.given; }) {
    return value.given ? write(value.value) : Json();
  } else if constexpr (Wrapped<T>::value) {
    return value ? write(*value) : Json();
  } else {
    return value;
  }
}

struct Lister {
  std::vector<KeyInfo>& keys;
  std::string path{};

  template <class T>
  void list_elements(const T&, const std::string&) {}
  template <Struct T>
  void list_elements(const std::vector<T>&, const std::string& at) {
    T element{};
    Lister inner{keys, at + "[]"};
    element.visit(inner);
  }
  template <class T>
  void list_elements(const Setting<T>& member, const std::string& at) {
    list_elements(member.value, at);
  }

  template <class T>
  void operator()(const char* key, T& member, const char* help) {
    const std::string at = join_path(path, key);
    if constexpr (Struct<T>) {
      Lister inner{keys, at};
      member.visit(inner);
    } else {
      std::string fallback;
      if constexpr (requires { member.has_default; })
        if (member.has_default) fallback = write(member.value).dump();
      keys.push_back({at, type_name(Tag<T>()), fallback == "null" ? "" : fallback, help});
      list_elements(member, at);
    }
  }
};

}  // namespace visiting

/// A config struct read from JSON. ConfigError, naming the place by `origins`, for an unknown key (with the nearest
/// known one) or a value of the wrong type. `path` is where `json` stands in the whole configuration.
template <class T>
T from_json(const Json& json, const Origins& origins, const std::string& path = "") {
  T result{};
  visiting::Reader{origins}.read(json, result, path);
  return result;
}

/// The JSON that reads back to the same value; what was not given is left out.
template <class T>
Json to_json(T value) {
  return visiting::write(value);
}

/// Every key of a config struct, in order, nested ones by their path.
template <class T>
std::vector<KeyInfo> list_keys() {
  std::vector<KeyInfo> keys;
  const auto value = std::make_unique<T>();  // GCC 12 doubts a large struct's members on the stack
  visiting::Lister lister{keys};
  value->visit(lister);
  return keys;
}

}  // namespace nought
