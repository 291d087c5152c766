// nought bench serve: what clients of a server get, of this program's own or of another.
#pragma once

#include <CLI/CLI.hpp>

#include "nought/cli/commands.h"

namespace nought {

void add_bench_serve(CLI::App& bench, Invocation& invocation);

}  // namespace nought
