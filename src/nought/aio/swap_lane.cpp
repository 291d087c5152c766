#include "nought/aio/swap_lane.h"

#include <algorithm>

namespace nought {

namespace {

/// How many pieces are on their way at once.
int64_t in_flight(const AioOptions& options) {
  return static_cast<int64_t>(options.queue_depth) * options.intra_op_parallelism;
}

}  // namespace

int64_t SwapLane::room_bytes(const AioOptions& options) { return in_flight(options) * kSwapGrid; }

SwapLane::SwapLane(const AioOptions& options, AioBackend backend, bool write, std::byte* room, const SwapFault& fault,
                   const std::string& thread_name)
    : write_(write),
      room_(room),
      fault_(fault),
      wave_(options.overlap_events ? 0 : static_cast<size_t>(in_flight(options))),
      crew_(backend == AioBackend::io_uring ? options.intra_op_parallelism : static_cast<int>(in_flight(options)),
            thread_name) {
  const int64_t room_of_each = room_bytes(options) / crew_.size();
  for (int i = 0; i < crew_.size(); ++i) {
    std::byte* const own = room + i * room_of_each;
    runners_.push_back(backend == AioBackend::io_uring ? make_uring_runner(options, own, fault)
                                                       : make_blocking_runner(own, fault));
  }
}

void SwapLane::run(std::span<const SwapPiece> pieces) {
  const auto run_together = [&](std::span<const SwapPiece> some) {
    PieceQueue queue(some);
    if (some.size() == 1) return runners_[0]->run(queue, write_);
    crew_.run([&](int worker) { runners_[static_cast<size_t>(worker)]->run(queue, write_); });
  };
  std::vector<SwapPiece> free, merging;
  std::partition_copy(pieces.begin(), pieces.end(), std::back_inserter(merging), std::back_inserter(free),
                      [](const SwapPiece& piece) { return piece.merges; });
  const size_t wave = wave_ > 0 ? wave_ : std::max<size_t>(free.size(), 1);
  for (size_t at = 0; at < free.size(); at += wave)
    run_together(std::span<const SwapPiece>(free).subspan(at, std::min(wave, free.size() - at)));
  // Pieces that merge may share a stretch: each must find what the others have written.
  for (const SwapPiece& piece : merging) SwapTransfer(piece, write_, room_, fault_).run();
}

}  // namespace nought
