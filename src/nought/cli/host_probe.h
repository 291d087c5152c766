// Which hosts of a run do not answer: asked when mpirun failed, which does not say it.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "nought/cli/hostfile.h"

namespace nought {

/// The hosts but this one on which `true` cannot be run by the agent within the time. All are asked at once.
std::vector<Host> silent_hosts(const std::vector<Host>& hosts, std::chrono::seconds patience = std::chrono::seconds(7));

/// One line that names them and says what to do; "" for none.
std::string describe_silent(const std::vector<Host>& silent);

}  // namespace nought
