// SwapLane: the queue of one direction of a SwapSpace, and the threads that serve it.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "nought/aio/crew.h"
#include "nought/aio/runner.h"

namespace nought {

class SwapLane {
 public:
  /// `room` has room_bytes(options) at a multiple of kDirectUnit. `backend`: io_uring or threads. IoError, which says
  /// why, if the system refuses io_uring.
  SwapLane(const AioOptions& options, AioBackend backend, bool write, std::byte* room, const SwapFault& fault,
           const std::string& thread_name);

  static int64_t room_bytes(const AioOptions& options);
  /// Carries out all pieces. IoError.
  void run(std::span<const SwapPiece> pieces);

 private:
  const bool write_;
  std::byte* const room_;
  const SwapFault& fault_;
  const size_t wave_;  // how many pieces start together; 0: each as soon as there is room
  std::vector<std::unique_ptr<PieceRunner>> runners_;
  Crew crew_;
};

}  // namespace nought
