// How much memory the collectives between processes take, and how tensors are cut to fit it. The MPI transport
// allocates it, and plan/ predicts it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "nought/base/math.h"
#include "nought/tensor/dtype.h"

namespace nought {

// --- Within a host: windows that its ranks share (SharedWindows) ---

/// Slots of one window. Some are read while others are filled.
inline constexpr int kSharedWindowSlots = 8;
/// Size of all windows of a host together, as far as the limits of a slot allow. A window is about as long as a core's
/// own cache. So a chunk waits in a cache that cores share, and when its slot is filled again it is no longer in the
/// reader's own cache, from where the stores would have to fetch it.
inline constexpr int64_t kAllSharedWindowsBytes = 4 << 20;
inline constexpr int64_t kLongestSlotBytes = 128 << 10;
inline constexpr int64_t kShortestSlotBytes = 32 << 10;

/// Size of a slot on a host with this many ranks.
constexpr int64_t shared_slot_bytes(int local_ranks) {
  const int64_t share = kAllSharedWindowsBytes / (int64_t{kSharedWindowSlots} * local_ranks);
  return std::clamp(share / 4096 * 4096, kShortestSlotBytes, kLongestSlotBytes);
}

/// Size of a mailbox: two counters with a cache line each, and a ring of chunks. A window has one for each rank.
inline constexpr int64_t kMailboxBytes = 256;

/// Size of one window on a host with this many ranks.
constexpr int64_t shared_window_bytes(int local_ranks) {
  return round_up(local_ranks * kMailboxBytes, 4096) + kSharedWindowSlots * shared_slot_bytes(local_ranks);
}

/// Size of all windows of a host. Every rank maps them all, and its ledger counts them.
constexpr int64_t all_shared_windows_bytes(int local_ranks) {
  return local_ranks > 1 ? local_ranks * shared_window_bytes(local_ranks) : 0;
}

// --- Between hosts: buffers that receive messages ---

/// Size of all buffers of a reduction together, and limits of one. They are small so that a segment is still in the
/// cache when it is added.
inline constexpr int64_t kReductionBytes = 4 << 20;
inline constexpr int64_t kLongestSegmentBytes = 1 << 20;
inline constexpr int64_t kShortestSegmentBytes = 16 << 10;
/// Sets of buffers: one receives while the other is added.
inline constexpr int kReductionSlots = 2;

/// Elements of one segment of a reduction in a group of `ranks` > 1. It is the same on all ranks.
constexpr int64_t reduction_segment(DType dtype, int ranks) {
  const int64_t share = kReductionBytes / (int64_t{kReductionSlots} * (ranks - 1));
  return std::clamp(share, kShortestSegmentBytes, kLongestSegmentBytes) / 64 * 64 / size_of(dtype);
}

/// Elements of one segment when the segments for `local_peers` > 0 ranks of the host share a slot.
constexpr int64_t shared_slot_segment(DType dtype, int64_t slot_bytes, int local_peers) {
  return slot_bytes / local_peers / 64 * 64 / size_of(dtype);
}

/// How many ranks of a group are on a host.
struct RanksOnHosts {
  int here = 1;  // on this rank's
  int most = 1;  // on the host with the most
};

/// Elements of one segment of a reduction in a group of `ranks` that has windows with slots of so many bytes; 0: none.
constexpr int64_t reduction_segment(DType dtype, int ranks, int most_local_peers, int64_t slot_bytes) {
  const int64_t length = reduction_segment(dtype, ranks);
  if (most_local_peers == 0 || slot_bytes == 0) return length;
  return std::min(length, shared_slot_segment(dtype, slot_bytes, most_local_peers));
}

}  // namespace nought
