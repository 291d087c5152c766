// What `nought info PATH` says of a checkpoint, an export, a Hugging Face folder, or the output folder of a run.
#pragma once

#include <filesystem>
#include <string>

#include "nought/base/json.h"

namespace nought {

/// IoError if the path is none of them. base: see find_model().
OrderedJson model_info(const std::filesystem::path& path, const std::filesystem::path& base = {});

/// The facts for people, one per line.
std::string model_info_text(const OrderedJson& info);

}  // namespace nought
