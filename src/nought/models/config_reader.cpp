#include "nought/models/config_reader.h"

#include <cmath>
#include <limits>

#include "nought/base/error.h"
#include "nought/base/json.h"
#include "nought/base/text.h"

namespace nought {

ConfigReader::ConfigReader(const Json& json, std::string source) : json_(json), source_(std::move(source)) {
  require<ConfigError>(json.is_object(), "{}: holds {}, expected an object", source_, json.type_name());
}

const Json* ConfigReader::value(const std::string& key) {
  read_.insert(key);
  const auto found = json_.find(key);
  return found == json_.end() || found->is_null() ? nullptr : &*found;
}

bool ConfigReader::has(const std::string& key) {
  read_.insert(key);
  return json_.contains(key);
}

std::optional<int64_t> ConfigReader::integer(const std::string& key) {
  const Json* found = value(key);
  if (!found) return std::nullopt;
  const bool fits = found->is_number_integer() &&
                    !(found->is_number_unsigned() &&
                      found->get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()));
  require<ConfigError>(fits, "{}: {} is {}, expected an integer", source_, key, found->dump());
  return found->get<int64_t>();
}

std::optional<double> ConfigReader::number(const std::string& key) {
  const Json* found = value(key);
  if (!found) return std::nullopt;
  require<ConfigError>(found->is_number(), "{}: {} is {}, expected a number", source_, key, found->dump());
  return found->get<double>();
}

std::optional<bool> ConfigReader::boolean(const std::string& key) {
  const Json* found = value(key);
  if (!found) return std::nullopt;
  require<ConfigError>(found->is_boolean(), "{}: {} is {}, expected true or false", source_, key, found->dump());
  return found->get<bool>();
}

std::optional<std::string> ConfigReader::text(const std::string& key) {
  const Json* found = value(key);
  if (!found) return std::nullopt;
  require<ConfigError>(found->is_string(), "{}: {} is {}, expected a string", source_, key, found->dump());
  return found->get<std::string>();
}

int64_t ConfigReader::size(const std::string& key, int64_t otherwise, int64_t most) {
  const int64_t number = integer(key).value_or(otherwise);
  require<ConfigError>(1 <= number && number <= most, "{}: {} is {}, expected 1 to {}", source_, key, number, most);
  return number;
}

double ConfigReader::non_negative(const std::string& key, double otherwise) {
  const double found = number(key).value_or(otherwise);
  require<ConfigError>(std::isfinite(found) && found >= 0, "{}: {} is {}, expected a number >= 0", source_, key, found);
  return found;
}

std::vector<int64_t> ConfigReader::ids(const std::string& key) {
  const Json* found = value(key);
  if (!found) return {};
  std::vector<int64_t> ids;
  for (const Json& id : found->is_array() ? *found : Json::array({*found})) {
    if (!id.is_number_integer())
      fail<ConfigError>("{}: {} is {}, expected an id or a list of ids", source_, key, found->dump());
    ids.push_back(id.get<int64_t>());
  }
  return ids;
}

void ConfigReader::only(const std::string& key, const Json& supported, const std::string& reason) {
  const Json* found = value(key);
  require<ConfigError>(!found || *found == supported, "{}: {} is {}, only {} is supported: {}", source_, key,
                       found ? found->dump() : "", supported.dump(), reason);
}

void ConfigReader::ignore(std::initializer_list<const char*> keys) { ignored_.insert(keys.begin(), keys.end()); }

std::vector<std::string> ConfigReader::unknown_keys() const {
  constexpr size_t kShortest = 5;  // shorter names lie near to each other by chance
  std::vector<std::string> unknown;
  for (const auto& [key, value] : json_.items()) {
    if (read_.contains(key) || ignored_.contains(key) || key.starts_with('_')) continue;
    for (const std::string& known : read_) {
      const bool misspelt = key.size() >= kShortest && edit_distance(key, known) <= (key.size() > 8 ? 2 : 1);
      require<ConfigError>(!misspelt, "{}: unknown key \"{}\" (did you mean \"{}\"?)", source_, key, known);
    }
    unknown.push_back(key);
  }
  return unknown;
}

}  // namespace nought
