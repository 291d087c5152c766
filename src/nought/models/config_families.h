// What each family reads from a config.json and writes to one: the only place, with names.h, that knows families.
#pragma once

#include <span>

#include "nought/base/json.h"
#include "nought/models/config.h"
#include "nought/models/config_reader.h"

namespace nought {

struct Family {
  const char* name;          // model_type
  const char* architecture;  // the class in transformers
  void (*read)(ConfigReader&, ModelConfig&);
  /// Adds the keys that describe the model, but for those that all families write alike.
  void (*write)(const ModelConfig&, OrderedJson&);
};

std::span<const Family> dense_families();
std::span<const Family> expert_families();
/// Both, in alphabetical order.
const std::vector<Family>& all_families();
/// ConfigError with the nearest known name if there is none.
const Family& family_named(const std::string& source, const std::string& name);

}  // namespace nought
