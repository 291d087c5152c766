// nought data clean: the command that filters web text.
#pragma once

#include <CLI/CLI.hpp>

#include "nought/cli/commands.h"

namespace nought {

/// Adds `clean` to `nought data`.
void add_data_clean(CLI::App& data, Invocation& invocation);

}  // namespace nought
