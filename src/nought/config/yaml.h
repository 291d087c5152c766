// YAML to Json, as far as configuration files need it: one document of maps, lists and scalars.
//
// Non-goals: anchors and aliases, tags, several documents. They are refused.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "nought/base/json_fwd.h"

namespace nought {

/// Plain scalars are read by YAML 1.1: null, true, yes, on, numbers; all others and those in quotes are strings.
/// ConfigError names `name` and the line: malformed text, a key given twice, and what is not read. `lines` learns the
/// line of each key by its path: "datasets[0].path".
Json parse_yaml(std::string_view text, std::string_view name, std::map<std::string, size_t>* lines = nullptr);

/// What a scalar without quotes stands for.
Json yaml_scalar(const std::string& text);

}  // namespace nought
