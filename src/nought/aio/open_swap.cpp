#include "nought/aio/open_swap.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <xxhash.h>

#include "nought/aio/pieces.h"
#include "nought/base/error.h"
#include "nought/base/math.h"
#include "nought/base/text.h"

namespace nought {

namespace {

/// How many bytes the file system has left for this user.
int64_t free_bytes(int descriptor) {
  struct statvfs disk {};
  if (::fstatvfs(descriptor, &disk) != 0) return std::numeric_limits<int64_t>::max();
  return static_cast<int64_t>(disk.f_bavail) * static_cast<int64_t>(disk.f_frsize);
}

}  // namespace

OpenSwap::OpenSwap(const std::filesystem::path& folder, std::string name, int64_t bytes, const SwapFault& fault)
    : name_(std::move(name)), bytes_(round_up(bytes, kSwapGrid)) {
  make(folder);
  try {
    reserve();
    blocks_.resize(block_of(bytes_));
    if (direct_ && bytes_ > 0 && !takes_direct(fault)) {
      direct_ = false;
      const int flags = ::fcntl(descriptor_, F_GETFL);
      if (::fcntl(descriptor_, F_SETFL, flags & ~O_DIRECT) != 0) fail_with("use", errno);
    }
  } catch (...) {
    ::close(descriptor_);
    throw;
  }
}

OpenSwap::~OpenSwap() { ::close(descriptor_); }

void OpenSwap::make(const std::filesystem::path& folder) {
  // Each host makes its own. Where even the parent is missing, the drive may not be mounted: the file is refused below.
  ::mkdir(folder.c_str(), 0777);
  std::string path = (folder / "nought-swap-XXXXXX").string();
  descriptor_ = ::mkostemp(path.data(), O_CLOEXEC | O_DIRECT);
  if (descriptor_ < 0 && errno == EINVAL) {
    direct_ = false;
    path = (folder / "nought-swap-XXXXXX").string();
    descriptor_ = ::mkostemp(path.data(), O_CLOEXEC);
  }
  const int refused = errno;
  require<IoError>(descriptor_ >= 0, "cannot make {}: {}; create the folder, or name another one (nvme_path)", name_,
                   std::strerror(refused));
  // The system frees it with the process, whatever ends that.
  int left = 0;
  while ((left = ::unlink(path.c_str()) == 0 ? 0 : errno) == EINTR) {
  }
  if (left == 0) return;
  ::close(descriptor_);
  fail<IoError>("cannot remove the name of {}, {}: {}; remove it, or name another folder (nvme_path)", name_, path,
                std::strerror(left));
}

void OpenSwap::fail_with(const char* what, int reason) const {
  fail<IoError>("cannot {} {}: {}", what, name_, std::strerror(reason));
}

void OpenSwap::reserve() const {
  if (bytes_ == 0) return;
  const int64_t available = free_bytes(descriptor_);
  int refused = available < bytes_ ? ENOSPC : 0;  // trying would take all that is left, from whoever needs it
  while (refused == 0 && ::fallocate(descriptor_, /*mode=*/0, /*offset=*/0, bytes_) != 0)
    refused = errno == EINTR ? 0 : errno;
  if (refused == EOPNOTSUPP) refused = ::ftruncate(descriptor_, bytes_) == 0 ? 0 : errno;
  if (refused != 0)
    fail<IoError>("cannot reserve {} for {}: {}, {} are free there; free space, or name another folder (nvme_path)",
                  format_bytes(bytes_), name_, std::strerror(refused), format_bytes(available));
}

bool OpenSwap::takes_direct(const SwapFault& fault) const {
  const std::unique_ptr<void, decltype(&std::free)> room(std::aligned_alloc(kDirectUnit, kDirectUnit), &std::free);
  if (!room) return false;
  std::memset(room.get(), 0, kDirectUnit);
  for (const bool write : {true, false}) {
    int64_t result = -EINTR;
    while (result == -EINTR) {
      result =
          write ? ::pwrite(descriptor_, room.get(), kDirectUnit, 0) : ::pread(descriptor_, room.get(), kDirectUnit, 0);
      if (result < 0) result = -errno;
      if (fault && write) result = fault({true, 0, kDirectUnit, result});
    }
    if (result == -EINVAL || result == -EOPNOTSUPP || result == -EAGAIN)
      return false;  // as a file system says that it cannot
    if (result < 0) fail_with(write ? "write" : "read", static_cast<int>(-result));
    if (result != kDirectUnit) return false;
  }
  return true;
}

void OpenSwap::note(int64_t offset, std::span<const std::byte> bytes) {
  for (size_t at = 0; at < bytes.size(); at += kSwapGrid) {
    const auto block = bytes.subspan(at, std::min<size_t>(kSwapGrid, bytes.size() - at));
    blocks_[block_of(offset + static_cast<int64_t>(at))] = {XXH3_64bits(block.data(), block.size()),
                                                            static_cast<int64_t>(block.size())};
  }
}

void OpenSwap::verify(int64_t offset, std::span<const std::byte> bytes) const {
  for (size_t at = 0; at < bytes.size(); at += kSwapGrid) {
    const auto block = bytes.subspan(at, std::min<size_t>(kSwapGrid, bytes.size() - at));
    const int64_t begin = offset + static_cast<int64_t>(at);
    require<IoError>(XXH3_64bits(block.data(), block.size()) == blocks_[block_of(begin)].checksum,
                     "bytes {} to {} of {} are not those that were written (their checksum differs): the drive or "
                     "another program changed them; check the drive, and resume from the last checkpoint",
                     begin, begin + static_cast<int64_t>(block.size()), name_);
  }
}

}  // namespace nought
