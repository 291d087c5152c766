// write_trace(): writes the trace events of all ranks to one file, for Perfetto (ui.perfetto.dev) or chrome://tracing.
#pragma once

#include <filesystem>
#include <span>

#include "nought/comm/communicator.h"
#include "nought/kernels/kernels.h"

namespace nought {

/// Writes JSON of the Trace Event Format. Each rank is a process with several threads: one shows what it computes
/// (phases, Units and their parts, operations and waits, nested in each other), one its collectives, with another one
/// for each further group of ranks, and of a pipeline one its passes by their names in the schedule, "F3.1". Messages
/// say what they are: "send activation 3". Times count from `origin`, which is the same moment on every rank.
/// Collective; rank 0 writes. IoError.
void write_trace(Communicator& ranks, const Context& context, std::span<const TraceEvent> events,
                 TraceEvent::Clock::time_point origin, const std::filesystem::path& file);

}  // namespace nought
