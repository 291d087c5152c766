// write_trace(): writes the trace events of all ranks to one file, for Perfetto (ui.perfetto.dev) or chrome://tracing.
#pragma once

#include <filesystem>
#include <span>

#include "nought/comm/communicator.h"
#include "nought/kernels/kernels.h"

namespace nought {

/// Writes JSON of the Trace Event Format. Each rank is a process with two threads: one shows what it computes (phases,
/// Units and their parts, operations and waits, nested in each other), one its collectives. Times count from `origin`,
/// which is the same moment on every rank. Collective; rank 0 writes. IoError.
void write_trace(Communicator& ranks, const Context& context, std::span<const TraceEvent> events,
                 TraceEvent::Clock::time_point origin, const std::filesystem::path& file);

}  // namespace nought
