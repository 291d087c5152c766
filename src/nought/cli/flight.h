// The flight recorders of commands that have no output folder.
#pragma once

#include <filesystem>

#include "nought/comm/communicator.h"
#include "nought/config/run_plan.h"

namespace nought {

/// Where they leave their files: "flight-recorder.PID" in the current folder, with the process of rank 0, as core(5)
/// names files. It is made when there is something to write. Collective.
std::filesystem::path own_flight_folder(Communicator& world, const Context& context);

/// How long the plan lets collectives take, and whether ranks compare their calls.
void watch_calls(Communicator& world, const RunPlan& plan);

}  // namespace nought
