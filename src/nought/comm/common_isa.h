// use_common_isa(): all ranks compute with the best instruction set that each of them has.
//
// Different instruction sets add in different orders. Replicas on different hosts stay equal to the bit only if they
// use the same one.
#pragma once

#include <string>
#include <vector>

#include "nought/comm/communicator.h"

namespace nought {

/// Caps isa() at the least of all ranks. Collective; call it before anything is computed. Where the ranks' instruction
/// sets differ, the result says which rank has the least, by the name of its host if `hosts` has one for each rank;
/// else it is empty.
std::string use_common_isa(Communicator& ranks, const Context& context, const std::vector<std::string>& hosts = {});

}  // namespace nought
