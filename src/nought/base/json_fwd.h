// The names of JSON values, for headers that only mention them: nlohmann/json.hpp takes two seconds to compile.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace nought {

using Json = nlohmann::json;
/// Keeps the order in which keys were added: for files that people read.
using OrderedJson = nlohmann::ordered_json;

}  // namespace nought
