// use_common_isa(): all ranks compute with the best instruction set that each of them has.
//
// Different instruction sets add in different orders. Replicas on different hosts stay equal to the bit only if they
// use the same one.
#pragma once

#include <string>
#include <vector>

#include "nought/comm/communicator.h"

namespace nought {

/// Caps isa() at the least of all ranks. Collective; call it before anything is computed. Returns "" if all ranks have
/// the same instruction set. Else the text says which rank has the least, and on which host if `hosts` names one per
/// rank.
std::string use_common_isa(Communicator& ranks, const Context& context, const std::vector<std::string>& hosts = {});

}  // namespace nought
