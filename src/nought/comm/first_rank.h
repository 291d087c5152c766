// Texts that ranks tell each other. What one rank finds out for all, since the state of a disk or of a clock may differ
// by the time that another rank looks; and what each of them has to say.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "nought/comm/communicator.h"

namespace nought {

/// The text that find() returns on rank 0, on every rank; find() is called there alone. Collective. What find() throws
/// leaves rank 0, and the others fail as they do for any rank that ends.
std::string found_by_first(Communicator& ranks, const Context& context, const std::function<std::string()>& find);

/// The texts that the ranks give, by rank, on all of them. Collective.
std::vector<std::string> texts_of_ranks(Communicator& ranks, const Context& context, const std::string& mine);

}  // namespace nought
