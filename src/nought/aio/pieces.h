// SwapPiece: one read or write of the system, cut from what SwapFile is asked for, and what surrounds it: alignment,
// checksums, results that are short.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "nought/aio/open_swap.h"
#include "nought/aio/swap_file.h"

namespace nought {

/// What addresses, offsets and lengths must be multiples of where the page cache is bypassed.
inline constexpr int64_t kDirectUnit = 4096;

struct SwapPiece {
  OpenSwap* file = nullptr;
  int64_t offset = 0;         // in the file, a multiple of kSwapGrid
  int64_t bytes = 0;          // the bytes from there on that the file holds, or will hold
  std::byte* user = nullptr;  // the tensor's bytes that are at [skip, skip + wanted) of them
  int64_t skip = 0, wanted = 0;
  bool staged = false;  // goes through room of kSwapGrid bytes
  bool merges = false;  // a write that keeps some of the stretch's bytes, which are read first: one at a time

  /// What the system is asked for: padded where the page cache is bypassed.
  int64_t system_bytes() const;
};

/// Cuts a part into pieces of at most `block_size` bytes, by what the file holds now. ShapeError for what leaves the
/// file, and for reads of what was never written.
void cut(OpenSwap& file, const SwapPart& part, bool write, int64_t block_size, std::vector<SwapPiece>& pieces);

/// One piece on its way.
class SwapTransfer {
 public:
  SwapTransfer() = default;
  /// `room` has kSwapGrid bytes at a multiple of kDirectUnit. Reads what a merging write keeps.
  SwapTransfer(const SwapPiece& piece, bool write, std::byte* room, const SwapFault& fault);

  int descriptor() const { return piece_.file->descriptor(); }
  bool write() const { return write_; }
  /// What the file is called in messages.
  const std::string& file_name() const { return piece_.file->name(); }
  /// True if it goes through the room.
  bool staged() const { return piece_.staged; }
  /// What is still to be read or written.
  std::byte* data() const { return data_ + done_; }
  int64_t offset() const { return piece_.offset + done_; }
  int64_t bytes() const { return piece_.system_bytes() - done_; }
  /// Takes the result of the system: bytes, or a negative errno. True if the piece is done. IoError.
  bool advance(int64_t result);
  /// Reads or writes all of it with calls that block.
  void run();

 private:
  [[noreturn]] void fail_with(int error) const;
  [[noreturn]] void fail_short(int error) const;

  SwapPiece piece_;
  const SwapFault* fault_ = nullptr;
  std::byte* data_ = nullptr;
  int64_t done_ = 0;
  int stalled_ = 0;  // results in a row that brought nothing
  bool write_ = false;
};

/// Pieces that several threads take.
class PieceQueue {
 public:
  explicit PieceQueue(std::span<const SwapPiece> pieces) : pieces_(pieces) {}
  /// The next one; null if there is none, or one has failed.
  const SwapPiece* take() {
    if (failed_.load(std::memory_order_relaxed)) return nullptr;
    const size_t index = next_.fetch_add(1, std::memory_order_relaxed);
    return index < pieces_.size() ? &pieces_[index] : nullptr;
  }
  void give_up() { failed_.store(true, std::memory_order_relaxed); }

 private:
  std::span<const SwapPiece> pieces_;
  std::atomic<size_t> next_ = 0;
  std::atomic<bool> failed_ = false;
};

}  // namespace nought
