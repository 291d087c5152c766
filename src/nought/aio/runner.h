// PieceRunner: one thread's way to carry out pieces: with calls that block, or with io_uring.
#pragma once

#include <memory>
#include <string>

#include "nought/aio/pieces.h"

namespace nought {

class PieceRunner {
 public:
  virtual ~PieceRunner() = default;
  /// Takes pieces and carries them out, until there are none. IoError.
  virtual void run(PieceQueue& pieces, bool write) = 0;
};

/// One at a time, with pread and pwrite. `room` has kSwapGrid bytes.
std::unique_ptr<PieceRunner> make_blocking_runner(std::byte* room, const SwapFault& fault);

/// queue_depth at a time, by io_uring. `room` has as many times kSwapGrid bytes. IoError, which says why, if the system
/// refuses it.
std::unique_ptr<PieceRunner> make_uring_runner(const AioOptions& options, std::byte* room, const SwapFault& fault);

/// Why the system refuses io_uring, by trying; "" if it allows it.
std::string uring_refusal();

}  // namespace nought
