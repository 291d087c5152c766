// SwapFile: a file of one rank that holds tensors which fit into no memory, read and written in the background.
//
// Design goals: every completion is checked, and what is read is what was written, by a checksum for each kSwapGrid
// bytes. A full disk is known at the start. A file leaves nothing behind, however the run ends: it loses its name when
// it is made, and the system frees it with the process. Reads and writes of the same bytes keep the order of their
// calls; all others overlap.
// Non-goals: contents that outlive the process, which are checkpoints; tensors of devices, which are copied to the host
// first.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "nought/aio/options.h"
#include "nought/aio/swap_call.h"
#include "nought/tensor/tensor.h"

namespace nought {

/// A tensor of the host, and where its bytes lie in a file.
struct SwapPart {
  int64_t offset = 0;  // bytes
  Tensor tensor;       // its memory is used until the Event of the call is done
};

/// What went to files and came from them: bytes of tensors, and the seconds in which some were on their way.
struct SwapTraffic {
  int64_t read = 0, written = 0;
  double read_seconds = 0, write_seconds = 0;
  double seconds = 0;  // either way
};

/// What the files of a rank share: their folder, two queues (one reads, one writes) with the threads that serve them,
/// and counts. On a Memory without contents (Memory::create_virtual) nothing is opened, read or written, but counted.
class SwapSpace {
 public:
  /// `folder` must exist; `owner` names the rank in messages: "rank 3". ConfigError for options that are out of range,
  /// IoError if io_uring is asked for and the system refuses it.
  SwapSpace(std::shared_ptr<Memory> memory, std::filesystem::path folder, std::string owner, AioOptions options = {});
  ~SwapSpace();
  SwapSpace(const SwapSpace&) = delete;
  SwapSpace& operator=(const SwapSpace&) = delete;

  const std::filesystem::path& folder() const;
  /// io_uring or threads.
  AioBackend backend() const;
  /// Why io_uring is not used though `automatic` asked for it, in one line; "" if it is, or if it was not asked for.
  const std::string& note() const;
  SwapTraffic traffic() const;

 private:
  friend class SwapFile;
  struct State;
  std::shared_ptr<State> state_;
};

/// One file. Its calls may come from several threads.
class SwapFile {
 public:
  /// Makes a file of `bytes` bytes (rounded up to kSwapGrid), whose room on the disk is reserved at once, and counts
  /// them in the ledger as Pool::file while it lives. `purpose` names it in messages: "optimizer states". IoError.
  SwapFile(SwapSpace& space, std::string purpose, int64_t bytes, Category category);
  /// Waits for what is under way.
  ~SwapFile();
  SwapFile(const SwapFile&) = delete;
  SwapFile& operator=(const SwapFile&) = delete;

  /// Reads the parts, side by side, after `after`. ShapeError at once for parts that leave the file, DeviceError for a
  /// tensor that the host has no access to. The Event throws what `after` throws; IoError for a read that the system
  /// refuses, a file that became shorter, and bytes that are not those which were written; ShapeError for bytes that
  /// were never written. After that, all later reads and writes of the SwapSpace fail as it did.
  ///
  /// Straight from the file go tensors that lie at multiples of 4096 in memory (see aligned()) and start at multiples
  /// of kSwapGrid in the file; others are copied once.
  Event read(std::vector<SwapPart> parts, Event after = {});
  /// Writes the parts, which must not overlap, in the same way.
  Event write(std::vector<SwapPart> parts, Event after = {});
  Event read(int64_t offset, const Tensor& into) { return read({{offset, into}}); }
  Event write(int64_t offset, const Tensor& from) { return write({{offset, from}}); }

  int64_t bytes() const;
  /// True if the page cache is bypassed (O_DIRECT).
  bool direct() const;
  /// "the swap file of rank 3 for optimizer states in /nvme"
  const std::string& name() const;

 private:
  struct State;
  Event submit(bool write, std::vector<SwapPart> parts, Event after);

  std::shared_ptr<State> state_;
};

/// A tensor at a multiple of 4096 in memory that the host has access to, with undefined contents.
Tensor aligned(Memory& memory, const Shape& shape, DType dtype, Category category, Pool pool = Pool::host);

}  // namespace nought
