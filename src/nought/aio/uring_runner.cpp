#include <cerrno>
#include <cstring>
#include <exception>
#include <vector>

#include <liburing.h>

#include "nought/aio/runner.h"
#include "nought/base/error.h"

namespace nought {

namespace {

/// Why the system refuses a ring.
std::string refusal(int error) {
  if (error == EPERM) return "the system forbids it (the sysctl kernel.io_uring_disabled, or a container's seccomp)";
  if (error == ENOSYS) return "the kernel has none, or a container's seccomp hides it";
  return std::strerror(error);
}

class UringRunner final : public PieceRunner {
 public:
  UringRunner(const AioOptions& options, std::byte* room, const SwapFault& fault)
      : single_submit_(options.single_submit), fault_(fault), flights_(static_cast<size_t>(options.queue_depth)) {
    const int refused = io_uring_queue_init(static_cast<unsigned>(options.queue_depth), &ring_, /*flags=*/0);
    require<IoError>(refused == 0, "{}", refusal(-refused));
    io_uring_probe* const probe = io_uring_get_probe_ring(&ring_);
    const bool complete =
        probe && io_uring_opcode_supported(probe, IORING_OP_READ) && io_uring_opcode_supported(probe, IORING_OP_WRITE);
    io_uring_free_probe(probe);
    if (!complete) {
      io_uring_queue_exit(&ring_);
      fail<IoError>("the kernel's lacks reads and writes (before Linux 5.6)");
    }
    // Saves the kernel the search for its small pages, which is a third of the time of a staged piece on a processor.
    // Tensors lie on huge pages, where it saves nothing that can be measured. It may be refused (RLIMIT_MEMLOCK).
    const iovec whole{room, flights_.size() * kSwapGrid};
    registered_ = room && io_uring_register_buffers(&ring_, &whole, 1) == 0;
    for (size_t i = 0; i < flights_.size(); ++i) {
      flights_[i].room = room + static_cast<int64_t>(i) * kSwapGrid;
      free_.push_back(&flights_[i]);
    }
  }
  ~UringRunner() override { io_uring_queue_exit(&ring_); }

  void run(PieceQueue& pieces, bool write) override {
    error_ = nullptr;
    while (true) {
      fill(pieces, write);
      if (free_.size() == flights_.size()) break;
      submit(/*wait=*/true);
      reap(pieces);
    }
    // Only now: the kernel has used the memory of all that was on its way.
    if (error_) std::rethrow_exception(error_);
  }

 private:
  struct Flight {
    SwapTransfer transfer;
    std::byte* room = nullptr;
  };

  void fill(PieceQueue& pieces, bool write) {
    while (!error_ && !free_.empty()) {
      const SwapPiece* const piece = pieces.take();
      if (!piece) return;
      Flight* const flight = free_.back();
      try {
        flight->transfer = SwapTransfer(*piece, write, flight->room, fault_);
      } catch (...) {
        give_up(pieces);
        return;
      }
      free_.pop_back();
      ask(*flight);
    }
  }

  void ask(Flight& flight) {
    io_uring_sqe* const entry = io_uring_get_sqe(&ring_);  // there are as many as flights
    const SwapTransfer& transfer = flight.transfer;
    const auto bytes = static_cast<unsigned>(transfer.bytes());
    const auto offset = static_cast<uint64_t>(transfer.offset());
    if (registered_ && transfer.staged() && transfer.write()) {
      io_uring_prep_write_fixed(entry, transfer.descriptor(), transfer.data(), bytes, offset, /*buf_index=*/0);
    } else if (registered_ && transfer.staged()) {
      io_uring_prep_read_fixed(entry, transfer.descriptor(), transfer.data(), bytes, offset, /*buf_index=*/0);
    } else if (transfer.write()) {
      io_uring_prep_write(entry, transfer.descriptor(), transfer.data(), bytes, offset);
    } else {
      io_uring_prep_read(entry, transfer.descriptor(), transfer.data(), bytes, offset);
    }
    io_uring_sqe_set_data(entry, &flight);
    asked_ = &flight;
    if (single_submit_) submit(/*wait=*/false);
  }

  void submit(bool wait) {
    const int result = wait ? io_uring_submit_and_wait(&ring_, 1) : io_uring_submit(&ring_);
    // EAGAIN and EBUSY: the kernel takes more when completions were taken. What was not taken stays in the ring.
    const bool later = result == -EINTR || result == -EAGAIN || result == -EBUSY;
    require<IoError>(result >= 0 || later, "io_uring does not take reads and writes of {}: {}",
                     asked_->transfer.file_name(), std::strerror(-result));
  }

  void reap(PieceQueue& pieces) {
    io_uring_cqe* entry = nullptr;
    while (io_uring_peek_cqe(&ring_, &entry) == 0) {
      Flight& flight = *static_cast<Flight*>(io_uring_cqe_get_data(entry));
      const int result = entry->res;
      io_uring_cqe_seen(&ring_, entry);
      bool done = true;
      try {
        done = flight.transfer.advance(result);
      } catch (...) {
        give_up(pieces);
      }
      if (done || error_) {
        free_.push_back(&flight);
      } else {
        ask(flight);
      }
    }
  }

  void give_up(PieceQueue& pieces) {
    if (!error_) error_ = std::current_exception();
    pieces.give_up();
  }

  io_uring ring_{};
  bool registered_ = false;  // the room
  const bool single_submit_;
  const SwapFault& fault_;
  std::vector<Flight> flights_;
  std::vector<Flight*> free_;
  const Flight* asked_ = nullptr;  // the last one
  std::exception_ptr error_;
};

}  // namespace

std::unique_ptr<PieceRunner> make_uring_runner(const AioOptions& options, std::byte* room, const SwapFault& fault) {
  return std::make_unique<UringRunner>(options, room, fault);
}

std::string uring_refusal() {
  try {
    UringRunner({.queue_depth = 1}, nullptr, nullptr);
  } catch (const IoError& error) {
    return error.what();
  }
  return {};
}

}  // namespace nought
