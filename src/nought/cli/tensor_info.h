// What is in files of tensors that are no model: a .safetensors, .bin or .pt file, and checkpoints of other programs.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "nought/base/json.h"

namespace nought {

/// Whether a path is a file of tensors, by what its name ends in, or a folder of them without a config.json.
bool is_of_tensors(const std::filesystem::path& path);
/// Its tensors, and what it says of the run that it is from. IoError.
OrderedJson tensor_info(const std::filesystem::path& path);
/// What tensor_info() found, as lines.
std::string tensor_info_text(const OrderedJson& info);

/// Adds who wrote a checkpoint of another program, its step, and the states that its optimizer keeps.
void add_foreign_run(const std::filesystem::path& folder, OrderedJson& info);
/// A line for each of these states.
std::vector<std::string> foreign_states_text(const OrderedJson& info);

}  // namespace nought
