// measure_swap(): how fast a folder holds states that are offloaded to files, with one setting; and plain calls on the
// same file.
#pragma once

#include <cstdint>
#include <string>

#include "nought/aio/open_swap.h"
#include "nought/aio/options.h"
#include "nought/measure/samples.h"
#include "nought/tensor/memory.h"
#include "nought/tensor/tensor.h"

namespace nought {

/// Rates of writes and reads of one setting, or of plain calls.
struct SwapRates {
  std::string name;     // "io_uring", "threads", "plain", "plain, through the page cache"
  AioOptions options;   // those that the first two were measured with
  Samples write, read;  // B/s

  /// The reads or writes that are on their way at once.
  int64_t on_the_way() const;
};

/// Plain pwrite and pread of 1 MiB on an open file.
class PlainCalls {
 public:
  static constexpr int64_t kBlock = 1 << 20;

  /// direct: they bypass the page cache. IoError.
  PlainCalls(const OpenSwap& file, bool direct);
  ~PlainCalls();
  PlainCalls(const PlainCalls&) = delete;
  PlainCalls& operator=(const PlainCalls&) = delete;

  /// Writes or reads all of it, one block after the other. What was written has left the page cache.
  void run(const Tensor& data, bool write) const;
  void reach_drive() const;
  /// Nothing of the file stays in the page cache.
  void forget() const;

 private:
  bool direct_;
  int descriptor_;
};

/// The seconds in which the setting writes or reads the whole of `data`, with `room` for what is on its way. Where the
/// page cache is in the way, what is written reaches the drive by `cached`.
double swap_seconds(const AioOptions& options, OpenSwap& file, const PlainCalls& cached, const Tensor& data,
                    const Tensor& room, bool write);

/// IoError unless the folder is there and has room for so many bytes.
void require_room(const std::string& folder, int64_t bytes);

/// Rates of one setting alone, in a fraction of a second where the drive is fast, with a file and as much memory of up
/// to 32 MiB.
SwapRates measure_swap(Memory& memory, const std::string& folder, AioOptions options);

}  // namespace nought
