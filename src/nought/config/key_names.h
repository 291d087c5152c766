// The key of a RUN.json that a person means who writes it under another name, or in another section.
#pragma once

#include <string>
#include <vector>

#include "nought/base/json.h"

namespace nought {

/// The path of a key of RUN.json: the one that `name` stands for elsewhere ("lr", "batch_size", "model_name_or_path"),
/// or else the only one that is called so. "" if there is none.
std::string meant_key(const std::string& name);

/// What is wrong with the keys of RUN.json and of its sections: one line for each that is unknown, with the key that is
/// meant or the nearest one. Removes notes to people.
std::vector<std::string> mistaken_keys(Json& run, const Origins& origins);

}  // namespace nought
