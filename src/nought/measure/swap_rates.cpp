#include "nought/measure/swap_rates.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "nought/aio/pieces.h"
#include "nought/aio/runner.h"
#include "nought/aio/swap_file.h"
#include "nought/aio/swap_lane.h"
#include "nought/base/error.h"
#include "nought/base/open_file.h"
#include "nought/base/text.h"
#include "nought/base/timing.h"

namespace nought {

namespace {
const SwapFault kNoFault;
}  // namespace

int64_t SwapRates::on_the_way() const {
  return static_cast<int64_t>(options.queue_depth) * options.intra_op_parallelism;
}

PlainCalls::PlainCalls(const OpenSwap& file, bool direct)
    : direct_(direct),
      descriptor_(open_file(fmt::format("/proc/self/fd/{}", file.descriptor()), O_RDWR | (direct ? O_DIRECT : 0))) {
  require<IoError>(descriptor_ >= 0, "cannot open {} again: {}", file.name(), std::strerror(errno));
}

PlainCalls::~PlainCalls() { ::close(descriptor_); }

void PlainCalls::run(const Tensor& data, bool write) const {
  for (int64_t at = 0; at < data.bytes();) {
    const auto size = static_cast<size_t>(std::min(kBlock, data.bytes() - at));
    const ssize_t moved =
        write ? ::pwrite(descriptor_, data.raw() + at, size, at) : ::pread(descriptor_, data.raw() + at, size, at);
    require<IoError>(moved > 0 || errno == EINTR, "cannot {} a plain file: {}", write ? "write" : "read",
                     std::strerror(errno));
    at += std::max<ssize_t>(moved, 0);
  }
  if (write && !direct_) reach_drive();
}

void PlainCalls::reach_drive() const { ::fdatasync(descriptor_); }

void PlainCalls::forget() const { ::posix_fadvise(descriptor_, 0, 0, POSIX_FADV_DONTNEED); }

double swap_seconds(const AioOptions& options, OpenSwap& file, const PlainCalls& cached, const Tensor& data,
                    const Tensor& room, bool write) {
  SwapLane lane(options, options.backend, write, room.raw(), kNoFault, "nought-bench");
  return seconds_of([&] {
    std::vector<SwapPiece> pieces;
    cut(file, {0, data}, write, options.block_size, pieces);
    lane.run(pieces);
    if (write && !file.direct()) cached.reach_drive();
  });
}

void require_room(const std::string& folder, int64_t bytes) {
  struct statvfs disk {};
  if (::statvfs(folder.c_str(), &disk) != 0) fail<IoError>("cannot measure {}: {}", folder, std::strerror(errno));
  const int64_t available = static_cast<int64_t>(disk.f_bavail) * static_cast<int64_t>(disk.f_frsize);
  require<IoError>(available >= bytes,
                   "cannot measure {}: up to {} are written, and {} are free there; free space, or name another folder",
                   folder, format_bytes(bytes), format_bytes(available));
}

SwapRates measure_swap(Memory& memory, const std::string& folder, AioOptions options) {
  constexpr int64_t kBytes = 32 << 20;
  require_room(folder, kBytes);
  if (options.backend == AioBackend::automatic)
    options.backend = uring_refusal().empty() ? AioBackend::io_uring : AioBackend::threads;
  SwapRates rates{std::string(name_of(options.backend)), options, {}, {}};
  const Tensor data = aligned(memory, {kBytes}, DType::u8, Category::workspace);
  std::memset(data.raw(), 1, kBytes);
  const Tensor room = aligned(memory, {rates.on_the_way() * kSwapGrid}, DType::u8, Category::workspace);
  OpenSwap file(folder, fmt::format("a file in {}", folder), kBytes);
  const PlainCalls cached(file, /*direct=*/false);
  // The room of a new file is written for the first time, which takes longer than what comes after.
  swap_seconds(options, file, cached, data, room, /*write=*/true);
  for (int i = 0; i < 3; ++i)
    for (const bool write : {true, false}) {
      cached.forget();
      (write ? rates.write : rates.read)
          .values.push_back(static_cast<double>(kBytes) / swap_seconds(options, file, cached, data, room, write));
    }
  return rates;
}

}  // namespace nought
