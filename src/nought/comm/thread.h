// Ranks as threads of one process: for tests, and for layouts that fit one process. Peers read each other's memory.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "nought/comm/communicator.h"

namespace nought {

/// A collective that could not finish because another rank failed: never the cause, always a consequence.
class PeerError : public CommError {
 public:
  using CommError::CommError;
};

/// One communicator per context, by rank; each is used by one thread and works on a communication thread of its own.
std::vector<std::unique_ptr<Communicator>> make_thread_communicators(const std::vector<Context>& contexts);
/// The same with fresh memory and the CPU kernels for each rank.
std::vector<std::unique_ptr<Communicator>> make_thread_communicators(int size);

/// Runs `body` once per rank, each on a thread of its own with one OpenMP thread, and joins them. When a rank throws,
/// the collectives that its peers wait in throw PeerError; run_ranks rethrows the cause of the lowest rank that has
/// one.
void run_ranks(int size, const std::function<void(Communicator&)>& body);
/// The same with the rank's Context: fresh memory, where its communication buffers are accounted too, and the kernels.
void run_ranks(int size, const std::function<void(Communicator&, const Context&)>& body);

}  // namespace nought
