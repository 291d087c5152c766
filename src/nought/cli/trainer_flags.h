// The flags of transformers' Trainer: `--max_steps 3` stands for `--set training.max_steps=3`, for every command that
// has --set. A dash and an underscore are the same in them.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace nought {

/// The arguments of the program, with --set KEY=VALUE in place of flags that are names of keys. Flags of the command
/// itself stay. A flag of a key that is true or false needs no value.
std::vector<std::string> with_trainer_flags(const CLI::App& app, const std::vector<std::string>& arguments);

/// Names that a flag may have besides the command's own: "--max_steps", for suggestions. Empty for a command without
/// --set.
std::vector<std::string> trainer_flag_names(const CLI::App& command);

}  // namespace nought
