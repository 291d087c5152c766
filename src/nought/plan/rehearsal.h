// What a rehearsal computes and talks with: kernels that compute nothing and ranks that are not there, so that the very
// code of a training step runs for its ledger and its counters alone.
#pragma once

#include "nought/comm/communicator.h"
#include "nought/kernels/kernels.h"
#include "nought/kernels/work.h"

namespace nought {

/// Leaves every tensor as it is, but for what the host reads back: an operation whose results it reads has a rehearse()
/// (kernels/operation.h). `work`, which is added to, outlives the kernels.
std::unique_ptr<Kernels> make_counting_kernels(Work& work);

/// Rank `rank` of `size` ranks whose messages go nowhere: traffic is counted, and what the MPI communicator shares
/// between the ranks of one host is allocated (nothing for ranks that are threads of one process).
enum class Wire : uint8_t { mpi, threads };
std::unique_ptr<Communicator> make_silent_communicator(const Context& context, int rank, int size, Wire wire);

}  // namespace nought
