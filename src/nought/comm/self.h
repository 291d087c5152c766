// The world of a program that runs as one rank. make_self_communicator() of communicator.h has no recorder.
#pragma once

#include <memory>

#include "nought/comm/communicator.h"

namespace nought {

/// A group of one rank whose flight recorder has what the rank does: step, phase, Unit. Its calls are not recorded, for
/// none of them can wait for another rank.
std::unique_ptr<Communicator> make_recorded_self_communicator();

}  // namespace nought
