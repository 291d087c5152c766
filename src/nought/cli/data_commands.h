// The subcommands of `nought data` that prepare text.
#pragma once

#include <CLI/CLI.hpp>

#include "nought/cli/commands.h"

namespace nought {

void add_data_clean(CLI::App& data, Invocation& invocation);
void add_data_dedup(CLI::App& data, Invocation& invocation);
void add_data_decontaminate(CLI::App& data, Invocation& invocation);
void add_data_stats(CLI::App& data, Invocation& invocation);

}  // namespace nought
