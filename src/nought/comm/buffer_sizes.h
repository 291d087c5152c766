// How much memory the collectives between processes take, and how tensors are cut for it: shared by the MPI transport,
// which takes it, and plan/, which says so.
#pragma once

#include <algorithm>
#include <cstdint>

#include "nought/base/math.h"
#include "nought/tensor/dtype.h"

namespace nought {

// --- Inside a host: windows that its ranks share (SharedWindows) ---

/// Chunks of one window: some are read while others are filled.
inline constexpr int kSharedWindowSlots = 8;
// All windows of a host together, within the limits of a slot. A window is as long as the cache that a core has for
// itself: a chunk waits in a cache that cores share, and its place is no longer in the reader's own when it is filled
// again, from where stores would have to take it back.
inline constexpr int64_t kAllSharedWindowsBytes = 4 << 20;
inline constexpr int64_t kLongestSlotBytes = 128 << 10;
inline constexpr int64_t kShortestSlotBytes = 32 << 10;

constexpr int64_t shared_slot_bytes(int local_ranks) {
  const int64_t share = kAllSharedWindowsBytes / (int64_t{kSharedWindowSlots} * local_ranks);
  return std::clamp(share / 4096 * 4096, kShortestSlotBytes, kLongestSlotBytes);
}

/// What a window needs to be read by: one mailbox of two cache lines and a ring of chunks for each rank.
inline constexpr int64_t kMailboxBytes = 256;

constexpr int64_t shared_window_bytes(int local_ranks) {
  return round_up(local_ranks * kMailboxBytes, 4096) + kSharedWindowSlots * shared_slot_bytes(local_ranks);
}

/// Bytes of all windows of a host. Every rank maps them all, and counts them.
constexpr int64_t all_shared_windows_bytes(int local_ranks) {
  return local_ranks > 1 ? local_ranks * shared_window_bytes(local_ranks) : 0;
}

// --- Between hosts: buffers that messages are received into ---

// All buffers of a reduction together, and the largest one: a segment shall still be in the cache when it is added.
inline constexpr int64_t kReductionBytes = 4 << 20;
inline constexpr int64_t kLongestSegmentBytes = 1 << 20;
inline constexpr int64_t kShortestSegmentBytes = 16 << 10;
/// One set of buffers is received while the other is added.
inline constexpr int kReductionSlots = 2;

/// Elements of a segment of a reduction in a group of `ranks` > 1; the same on all ranks.
constexpr int64_t reduction_segment(DType dtype, int ranks) {
  const int64_t share = kReductionBytes / (int64_t{kReductionSlots} * (ranks - 1));
  return std::clamp(share, kShortestSegmentBytes, kLongestSegmentBytes) / 64 * 64 / size_of(dtype);
}

/// Elements of a segment when the pieces for `local_peers` > 0 ranks of the host share a slot.
constexpr int64_t shared_slot_segment(DType dtype, int64_t slot_bytes, int local_peers) {
  return slot_bytes / local_peers / 64 * 64 / size_of(dtype);
}

}  // namespace nought
