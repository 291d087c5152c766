// What the command line offers, as plain data: every command with its options. Completion and man pages are made of it,
// so that they list what --help does.
#pragma once

#include <string>
#include <vector>

#include "nought/cli/commands.h"

namespace nought {

struct OptionEntry {
  std::vector<std::string> names;  // "--output", "-o"; of an argument its name, "RUN.json"
  std::string value;               // "FILE"; "" for a flag
  std::string help;
  bool is_argument = false;
};
struct CommandEntry {
  std::string name;  // "train", "bench step"; "" for the program
  std::string help;
  std::vector<OptionEntry> options;
  std::vector<std::string> examples;  // "nought train run.json"
};

/// The program, then its commands in their order, each followed by its own commands.
std::vector<CommandEntry> command_table(const CLI::App& app);

/// The values that a key of RUN.json may have: those of "one of linear, cosine" and "true or false"; none for others.
std::vector<std::string> values_of_type(const std::string& type);

/// Scripts for the shells: commands, options, files, keys of RUN.json after --set, and their values.
std::string bash_completion(const std::vector<CommandEntry>& commands);
std::string zsh_completion(const std::vector<CommandEntry>& commands);
std::string fish_completion(const std::vector<CommandEntry>& commands);

/// The man page of a command in roff (section 1), and that of RUN.json (section 5).
std::string man_page(const CommandEntry& command, const std::vector<CommandEntry>& all);
std::string man_page_of_run_file();

}  // namespace nought
