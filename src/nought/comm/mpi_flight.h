// The flight recorder of a rank that is a process, and the pages of the ranks of its host.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <mpi.h>

#include "nought/comm/flight_recorder.h"

namespace nought {

/// All ranks of `everyone` call it together; `host` has those of this host, and `host_names` is by rank of `everyone`.
/// Ranks whose memory this process cannot open are out of reach, as those of other hosts. The caller holds MPI's lock.
std::shared_ptr<FlightRecorder> meet_recorders(MPI_Comm everyone, MPI_Comm host,
                                               const std::vector<std::string>& host_names);

}  // namespace nought
