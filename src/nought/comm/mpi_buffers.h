// How much memory a reduction between processes takes: shared by MpiTransport, which takes it, and plan/, which says
// so.
#pragma once

#include <algorithm>
#include <cstdint>

#include "nought/base/math.h"
#include "nought/tensor/dtype.h"

namespace nought {

// All buffers of a reduction together, and the largest one: a segment shall still be in the cache when it is added.
inline constexpr int64_t kReductionBytes = 4 << 20;
inline constexpr int64_t kLongestSegmentBytes = 1 << 20;
inline constexpr int64_t kShortestSegmentBytes = 16 << 10;
/// One set of buffers is received while the other is added.
inline constexpr int kReductionSlots = 2;

/// Elements of a segment of a reduction in a group of `ranks` > 1; the same on all ranks.
constexpr int64_t reduction_segment(DType dtype, int ranks) {
  const int64_t share = kReductionBytes / (kReductionSlots * (ranks - 1));
  return std::clamp(share, kShortestSegmentBytes, kLongestSegmentBytes) / 64 * 64 / size_of(dtype);
}

/// Bytes of all buffers of a reduction in which this rank's part has `part_bytes`.
constexpr int64_t reduction_buffer_bytes(int64_t part_bytes, DType dtype, int ranks) {
  const int64_t buffer = std::min(reduction_segment(dtype, ranks) * size_of(dtype), part_bytes);
  return kReductionSlots * (ranks - 1) * round_up(buffer, 64);
}

}  // namespace nought
