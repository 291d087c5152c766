// How files are read and written in the background: DeepSpeed's section "aio".
#pragma once

#include <cstdint>
#include <string_view>

namespace nought {

/// What carries out reads and writes of files in the background.
enum class AioBackend : uint8_t {
  automatic,  // io_uring where the system allows it, else threads
  io_uring,
  threads
};
constexpr std::string_view name_of(AioBackend backend) {
  switch (backend) {
    case AioBackend::automatic:
      return "auto";
    case AioBackend::io_uring:
      return "io_uring";
    case AioBackend::threads:
      return "threads";
  }
  return "?";
}

/// DeepSpeed's "aio", with its defaults.
struct AioOptions {
  int64_t block_size = 1 << 20;  // bytes of one read or write at most; a multiple of kSwapGrid
  int queue_depth = 8;           // reads or writes that are under way at once, for each of intra_op_parallelism
  int intra_op_parallelism = 1;  // threads that submit them; of a pool of threads, queue_depth times as many work
  bool single_submit = false;    // io_uring: one system call for each of them, not for all that are ready
  bool overlap_events = true;    // false: the next ones start when all of the last queue_depth are done
  AioBackend backend = AioBackend::automatic;

  friend bool operator==(const AioOptions&, const AioOptions&) = default;
};

/// A swap file has one checksum for so many bytes. What is written from a multiple of it on is written at once; parts
/// of such a stretch that holds other bytes cost a read besides.
inline constexpr int64_t kSwapGrid = 64 << 10;

/// The largest options.
inline constexpr int64_t kLargestSwapBlock = 1 << 30;
inline constexpr int64_t kMostSwapDepth = 1024, kMostSwapThreads = 64;

}  // namespace nought
