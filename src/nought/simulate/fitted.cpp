#include "nought/simulate/fitted.h"

#include <cmath>

#include "nought/base/error.h"
#include "nought/base/json.h"

namespace nought {

namespace {

struct ConstantChecker {
  const Json& given;
  const std::string& place;

  void operator()(const char* key, const double& value, const char* /*help*/) const {
    require<ConfigError>(given.contains(key), "{}: {} is missing", place, key);
    require<ConfigError>(std::isfinite(value) && value >= 0, "{}: {} must be a finite number of at least 0, got {}",
                         place, key, value);
  }
};

}  // namespace

std::map<std::string, FittedConstants> read_fitted(const std::string& text, const std::string& name) {
  const Json json = parse_json(text, name);
  require<ConfigError>(json.is_object(), "{}: expected an object of sets of constants", name);
  std::map<std::string, FittedConstants> sets;
  for (const auto& [key, value] : json.items()) {
    const std::string place = name + ": " + key;
    auto set = from_json<FittedConstants>(value, Origins(place));
    ConstantChecker checker{value, place};
    set.visit(checker);
    sets.emplace(key, set);
  }
  return sets;
}

const std::map<std::string, FittedConstants>& fitted_constants() {
  static const std::map<std::string, FittedConstants> all = read_fitted(fitted_text(), "fitted.json");
  return all;
}

}  // namespace nought
