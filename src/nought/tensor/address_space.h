// The limit of a process's address space, which refuses memory long before there is none.
#pragma once

#include <string>

namespace nought {

/// What a message about refused memory adds: " (ulimit -v limits this process to 512.0 MiB)", or "" without a limit.
std::string address_space_note();

}  // namespace nought
