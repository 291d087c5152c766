// The key of a RUN.json that a person means who writes it under another name, or in another section.
#pragma once

#include <string>
#include <vector>

#include "nought/base/json.h"

namespace nought {

/// The path of a key of RUN.json: the one that `name` stands for elsewhere ("lr", "batch_size", "model_name_or_path"),
/// or else the only one that is called so. "" if there is none.
std::string meant_key(const std::string& name);

/// ConfigError for the keys of RUN.json, and of its sections data and training, that nobody knows but meant_key() does.
/// Removes notes to people. Other unknown keys are left to from_json().
void check_key_names(Json& run, const Origins& origins);

}  // namespace nought
