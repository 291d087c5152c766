// Ranks as threads of one process, for tests and for runs that fit one process. Ranks read each other's memory.
#pragma once

#include <functional>
#include <vector>

#include "nought/comm/communicator.h"

namespace nought {

/// A collective could not finish because another rank failed. It is always a consequence of that rank's own error.
class PeerError : public CommError {
 public:
  using CommError::CommError;
};

/// Runs `body` once per rank, each on a thread of its own with one OpenMP thread, and joins them. Each rank runs its
/// calls on a communication thread of its own. If a rank throws, the collectives in which its peers wait throw
/// PeerError. run_ranks then rethrows the error of the lowest rank whose error is not a PeerError.
void run_ranks(int size, const std::function<void(Communicator&)>& body);
/// Runs `body` with the rank's Context: the CPU kernels and a fresh Memory, which counts its communication buffers too.
void run_ranks(int size, const std::function<void(Communicator&, const Context&)>& body);
/// Runs `body` with one rank for each of these contexts, whatever device they compute on.
void run_ranks(const std::vector<Context>& contexts, const std::function<void(Communicator&, const Context&)>& body);

}  // namespace nought
