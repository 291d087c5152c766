// The name of the machine that this process runs on, for messages and file names.
#pragma once

#include <string>

namespace nought {

/// As gethostname() has it; "-" if it has none.
std::string host_name();

}  // namespace nought
