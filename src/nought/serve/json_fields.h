// JsonFields: reads the fields of a request, each honoured or refused by its name.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "nought/base/json_fwd.h"
#include "nought/serve/api_error.h"

namespace nought {

/// The object that a body holds. ApiError if it is none, is nested too deeply, or has too many keys.
OrderedJson parse_body(std::string_view body);

class JsonFields {
 public:
  /// `where`: the name of the object within the request, "" for the request itself.
  explicit JsonFields(const OrderedJson& object, std::string where = {});

  /// The value, or null if the field is absent or null. The others throw ApiError for a wrong type or range.
  const OrderedJson* find(const std::string& name);
  std::optional<double> number(const std::string& name, double least, double most);
  std::optional<int64_t> integer(const std::string& name, int64_t least, int64_t most);
  bool boolean(const std::string& name, bool otherwise);
  std::optional<std::string> text(const std::string& name);
  /// Names of fields that change nothing here.
  void ignore(const std::vector<std::string>& names);
  /// Fields that are known and not supported: ApiError unless they are absent, null or false.
  void refuse(const std::vector<std::string>& names);
  /// ApiError for the first field that nobody asked for, with the nearest that somebody did.
  void finish() const;
  std::string param(const std::string& name) const { return where_.empty() ? name : where_ + "." + name; }
  [[noreturn]] void wrong(const std::string& name, const std::string& expected) const;

 private:
  const OrderedJson& object_;
  std::string where_;
  std::vector<std::string> known_, refused_;
};

}  // namespace nought
