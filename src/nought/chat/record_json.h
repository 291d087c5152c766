// The JSON of a record whose keys keep their order.
#pragma once

#include <string_view>

#include "nought/base/json_fwd.h"

namespace nought {

/// Whether no object of it has more than 5000 keys. Each new key of an ordered one is compared with all before it.
bool has_few_keys(std::string_view json);
/// A discarded value if it is no JSON and exceptions are not allowed; else OrderedJson::parse_error. ConfigError unless
/// it has few keys.
OrderedJson parse_record(std::string_view text, bool allow_exceptions);

}  // namespace nought
