// What other programs call the keys of a RUN.json, and which of their keys need no counterpart in it.
//
// Non-goals: values that mean something else than here (foreign_run.cpp).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "nought/config/foreign_settings.h"

namespace nought {

/// The path in a RUN.json that a key of a format stands for; "" if there is none.
std::string path_of_foreign_key(ForeignFormat format, const std::string& key);

/// Why a key has nothing to say here, whatever its value: what it asks for is always so, or never needed.
std::optional<std::string_view> why_not_needed(const std::string& key);

/// Why a key that has no counterpart has none, where there is more to say than that.
std::optional<std::string_view> why_missing(const std::string& key);

}  // namespace nought
