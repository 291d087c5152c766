#include "nought/aio/pieces.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include <sys/stat.h>
#include <unistd.h>

#include "nought/base/error.h"
#include "nought/base/math.h"

namespace nought {

namespace {

constexpr int kMaxStalled = 100;

bool can_go_straight(const OpenSwap& file, const std::byte* user, int64_t bytes) {
  return !file.direct() || (std::bit_cast<uintptr_t>(user) % kDirectUnit == 0 && bytes % kDirectUnit == 0);
}

/// The part of one stretch that [offset, end) has.
SwapPiece within_block(OpenSwap& file, int64_t offset, int64_t end, std::byte* user, bool write) {
  SwapPiece piece{.file = &file, .offset = offset / kSwapGrid * kSwapGrid, .user = user};
  piece.skip = offset - piece.offset;
  piece.wanted = std::min(end - piece.offset, kSwapGrid) - piece.skip;
  const int64_t valid = file.valid_bytes(piece.offset), last = piece.skip + piece.wanted;
  if (write) {
    piece.bytes = std::max(valid, last);
    piece.merges = piece.skip > 0 || last < valid;
  } else {
    require<ShapeError>(last <= valid, "bytes {} to {} of {} are read, but were never written", offset,
                        piece.offset + last, file.name());
    piece.bytes = valid;
  }
  piece.staged = piece.wanted < piece.bytes || !can_go_straight(file, user, piece.bytes);
  return piece;
}

}  // namespace

int64_t SwapPiece::system_bytes() const { return file->direct() ? round_up(bytes, kDirectUnit) : bytes; }

void cut(OpenSwap& file, const SwapPart& part, bool write, int64_t block_size, std::vector<SwapPiece>& pieces) {
  const int64_t end = part.offset + part.tensor.bytes();
  require<ShapeError>(0 <= part.offset && end <= file.bytes(), "bytes {} to {} leave {}, which has {}", part.offset,
                      end, file.name(), file.bytes());
  SwapPiece* joined = nullptr;  // the last piece, while more can be added to it
  for (int64_t at = part.offset; at < end;) {
    const SwapPiece next = within_block(file, at, end, part.tensor.raw() + (at - part.offset), write);
    at += next.wanted;
    if (joined && !next.staged && joined->bytes + next.bytes <= block_size) {
      joined->bytes += next.bytes;
      joined->wanted += next.wanted;
    } else {
      pieces.push_back(next);
      joined = next.staged ? nullptr : &pieces.back();
    }
    if (next.bytes < kSwapGrid) joined = nullptr;
  }
}

SwapTransfer::SwapTransfer(const SwapPiece& piece, bool write, std::byte* room, const SwapFault& fault)
    : piece_(piece), fault_(&fault), data_(piece.staged ? room : piece.user), write_(write) {
  if (!write) return;
  if (piece.staged) {
    const int64_t kept = piece.merges ? piece.file->valid_bytes(piece.offset) : 0;
    piece_.bytes = std::max(piece.bytes, kept);  // others may have merged since it was cut
    if (kept > 0) {
      const SwapPiece old{.file = piece.file,
                          .offset = piece.offset,
                          .bytes = kept,
                          .user = room,
                          .wanted = kept,
                          .staged = false,
                          .merges = false};
      SwapTransfer(old, /*write=*/false, room, fault).run();
    }
    std::memset(room + kept, 0, static_cast<size_t>(kSwapGrid - kept));
    std::memcpy(room + piece.skip, piece.user, static_cast<size_t>(piece.wanted));
  }
  piece_.file->note(piece_.offset, {data_, static_cast<size_t>(piece_.bytes)});
}

bool SwapTransfer::advance(int64_t result) {
  if (*fault_) result = (*fault_)({write_, offset(), bytes(), result});
  if (result < 0 && result != -EINTR && result != -EAGAIN) fail_with(static_cast<int>(-result));
  int64_t moved = std::clamp<int64_t>(result, 0, bytes());
  // What bypasses the page cache goes on at a multiple of its unit.
  if (piece_.file->direct()) moved = moved / kDirectUnit * kDirectUnit;
  stalled_ = moved > 0 ? 0 : stalled_ + 1;
  if ((moved == 0 && result == 0) || stalled_ > kMaxStalled) fail_short(result < 0 ? static_cast<int>(-result) : EIO);
  done_ += moved;
  if (bytes() > 0) return false;
  if (!write_) {
    piece_.file->verify(piece_.offset, {data_, static_cast<size_t>(piece_.bytes)});
    if (piece_.staged) std::memcpy(piece_.user, data_ + piece_.skip, static_cast<size_t>(piece_.wanted));
  }
  return true;
}

void SwapTransfer::run() {
  for (bool done = false; !done;) {
    const auto size = static_cast<size_t>(bytes());
    const ssize_t result =
        write_ ? ::pwrite(descriptor(), data(), size, offset()) : ::pread(descriptor(), data(), size, offset());
    done = advance(result < 0 ? -errno : result);
  }
}

void SwapTransfer::fail_with(int error) const {
  fail<IoError>("cannot {} {} bytes at byte {} of {}: {}; {}, and resume from the last checkpoint",
                write_ ? "write" : "read", bytes(), offset(), piece_.file->name(), std::strerror(error),
                error == ENOSPC || error == EDQUOT || error == EFBIG ? "free space, or name another folder (nvme_path)"
                                                                     : "check the drive (the kernel's log says more)");
}

void SwapTransfer::fail_short(int error) const {
  struct stat now {};
  const int64_t size = ::fstat(descriptor(), &now) == 0 ? now.st_size : -1;
  if (size >= 0 && size < offset() + bytes())
    fail<IoError>("{} has {} bytes left of {}: another program made it shorter; resume from the last checkpoint",
                  piece_.file->name(), size, piece_.file->bytes());
  fail_with(error);
}

}  // namespace nought
