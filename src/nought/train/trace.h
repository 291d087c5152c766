// A trace of all ranks' timelines in one file, for Perfetto (ui.perfetto.dev) or chrome://tracing.
#pragma once

#include <filesystem>
#include <span>

#include "nought/comm/communicator.h"
#include "nought/kernels/kernels.h"

namespace nought {

/// Trace events (the Trace Event Format's JSON): a process for each rank; a thread for what it computes (phases, Units
/// and their parts, operations and waits, one within the other) and one for its collectives. Times are from `origin`,
/// which is the same moment on every rank. Collective; rank 0 writes. IoError.
void write_trace(Communicator& ranks, const Context& context, std::span<const TraceEvent> events,
                 TraceEvent::Clock::time_point origin, const std::filesystem::path& file);

}  // namespace nought
