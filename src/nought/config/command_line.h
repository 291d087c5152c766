// The commands of a shell script, as words, as far as scripts go that start a training.
//
// Comments, lines that go on, quotes, NAME=VALUE, arrays, $NAME, ${NAME} and ${NAME:-default} are followed. Arguments
// of the script are empty, and an assignment inside of `if` holds where the variable has no value yet, as such scripts
// give defaults.
//
// Non-goals: conditions, loops, functions. What a command would print is not known: such words are marked.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace nought {

struct ShellWord {
  std::string text;
  size_t line = 1;
  bool computed = false;  // a part of it is what a command prints, or differs in the turns of a loop
};
using ShellCommand = std::vector<ShellWord>;

/// Commands in their order, without redirections and assignments.
std::vector<ShellCommand> read_commands(std::string_view script);

}  // namespace nought
