// JsonView: a value in a JSON file and its place. If reading it fails, the error message names the place.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "nought/base/error.h"
#include "nought/base/json.h"

namespace nought {

class JsonView {
 public:
  JsonView(const Json& value, std::string place) : value_(&value), place_(std::move(place)) {}

  const std::string& place() const { return place_; }
  const Json& json() const { return *value_; }
  bool is_null() const { return value_->is_null(); }
  bool is_string() const { return value_->is_string(); }
  bool is_object() const { return value_->is_object(); }
  bool is_list() const { return value_->is_array(); }

  /// The value of a key; null if the key is absent. ConfigError unless this is an object.
  JsonView operator[](std::string_view key) const;
  /// The elements of a list. ConfigError unless this is a list.
  std::vector<JsonView> list() const;

  /// The value. ConfigError if it has another type.
  const std::string& string() const;
  int64_t integer() const;
  double number() const;
  bool boolean() const;
  bool boolean_or(bool fallback) const { return is_null() ? fallback : boolean(); }
  std::string string_or(std::string fallback) const { return is_null() ? std::move(fallback) : string(); }

  /// Throws a ConfigError that names this place, "FILE: model.type: ...", unless the condition holds.
  template <class... Args>
  void check(bool condition, fmt::format_string<Args...> message, Args&&... args) const {
    if (!condition) throw ConfigError(place_ + ": " + fmt::format(message, std::forward<Args>(args)...));
  }
  /// ConfigError if any of the keys is present with a value other than null, "" or false.
  void refuse(std::initializer_list<std::string_view> keys) const;

 private:
  [[noreturn]] void expected(std::string_view what) const;

  const Json* value_;
  std::string place_;
};

}  // namespace nought
