#include "nought/comm/buffer_sizes.h"

#include <gtest/gtest.h>

namespace nought::buffer_sizes_test {
namespace {

TEST(BufferSizes, windows_of_a_host_stay_within_their_limits) {
  EXPECT_EQ(all_shared_windows_bytes(1), 0) << "one rank has nobody to share with";
  int64_t before = kLongestSlotBytes;
  for (int ranks = 2; ranks <= 256; ++ranks) {
    const int64_t slot = shared_slot_bytes(ranks);
    EXPECT_EQ(slot % 4096, 0);
    EXPECT_LE(slot, before) << "more ranks never have larger slots";
    EXPECT_GE(slot, kShortestSlotBytes);
    EXPECT_GE(shared_window_bytes(ranks), ranks * kMailboxBytes + kSharedWindowSlots * slot);
    EXPECT_EQ(shared_window_bytes(ranks) % 4096, 0);
    if (slot > kShortestSlotBytes) {
      EXPECT_LE(ranks * kSharedWindowSlots * slot, kAllSharedWindowsBytes);
    }
    before = slot;
  }
}

TEST(BufferSizes, segments_are_whole_lines_and_their_buffers_fit) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64, DType::u8})
    for (int ranks = 2; ranks <= 64; ++ranks) {
      const int64_t bytes = reduction_segment(dtype, ranks) * size_of(dtype);
      EXPECT_EQ(bytes % 64, 0);
      EXPECT_LE(bytes, kLongestSegmentBytes);
      EXPECT_GE(bytes, kShortestSegmentBytes);
      if (bytes > kShortestSegmentBytes) {
        EXPECT_LE(kReductionSlots * (ranks - 1) * bytes, kReductionBytes);
      }
      const int64_t slot = shared_slot_bytes(ranks), shared = shared_slot_segment(dtype, slot, ranks - 1);
      EXPECT_GT(shared, 0);
      EXPECT_LE(shared * size_of(dtype) * (ranks - 1), slot) << "the pieces for all peers share a slot";
    }
}

}  // namespace
}  // namespace nought::buffer_sizes_test
