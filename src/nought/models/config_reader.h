// ConfigReader: reads typed keys of a JSON object, and reports the keys that nobody read.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "nought/base/json_fwd.h"

namespace nought {

/// A key that is null counts as absent, as in Hugging Face's configs. Errors are ConfigErrors that name source and key.
class ConfigReader {
 public:
  /// `json` must outlive the reader.
  ConfigReader(const Json& json, std::string source);

  const std::string& source() const { return source_; }
  /// The value of a key, or nullptr if it is absent or null.
  const Json* value(const std::string& key);
  /// Whether a key is there at all, null or not.
  bool has(const std::string& key);
  std::optional<int64_t> integer(const std::string& key);
  std::optional<double> number(const std::string& key);
  std::optional<bool> boolean(const std::string& key);
  std::optional<std::string> text(const std::string& key);
  /// A size in [1, most], or `otherwise` if the key is absent.
  int64_t size(const std::string& key, int64_t otherwise, int64_t most);
  /// A finite number >= 0, or `otherwise` if the key is absent.
  double non_negative(const std::string& key, double otherwise);
  /// A key that holds one id or a list of ids; empty if it is absent.
  std::vector<int64_t> ids(const std::string& key);
  /// Refuses the key unless it is absent or has this value.
  void only(const std::string& key, const Json& supported, const std::string& reason);

  /// Declares keys that are known and have no effect.
  void ignore(std::initializer_list<const char*> keys);
  /// The keys that were neither read nor ignored, but for those that begin with "_", which are transformers' own.
  /// ConfigError if one is so near to a key that was read that it is a misspelling.
  std::vector<std::string> unknown_keys() const;

 private:
  const Json& json_;
  std::string source_;
  std::set<std::string> read_, ignored_;
};

}  // namespace nought
