// One direction of a file without the queues before it, as `nought bench` measures it.
#include "nought/aio/swap_lane.h"

#include "support/temp_folder.h"
#include <gtest/gtest.h>

#include "nought/aio/open_swap.h"
#include "nought/base/error.h"

namespace nought::swap_lane_test {
namespace {

TEST(SwapLane, what_one_writes_another_reads_and_a_changed_byte_is_found) {
  const test::TempFolder folder;
  const auto memory = Memory::create();
  const AioOptions options{.backend = AioBackend::threads};
  const SwapFault no_fault;
  OpenSwap file(folder.path(), "tensors", 2 * kSwapGrid);
  const Tensor room =
      Tensor::empty(*memory, {SwapLane::room_bytes(options) + kDirectUnit}, DType::u8, Category::workspace);
  std::byte* const aligned = room.raw() + (kDirectUnit - reinterpret_cast<uintptr_t>(room.raw()) % kDirectUnit);
  const Tensor written = Tensor::zeros(*memory, {kSwapGrid + 100}, DType::u8, Category::workspace);
  for (int64_t i = 0; i < written.numel(); ++i) written.data<uint8_t>()[i] = static_cast<uint8_t>(i % 251);
  const Tensor read = Tensor::zeros(*memory, written.shape(), DType::u8, Category::workspace);
  for (const bool write : {true, false}) {
    SwapLane lane(options, options.backend, write, aligned, no_fault, "nought-test");
    std::vector<SwapPiece> pieces;
    cut(file, {0, write ? written : read}, write, options.block_size, pieces);
    lane.run(pieces);
  }
  EXPECT_EQ(read.to_vector<int>(), written.to_vector<int>());
  EXPECT_EQ(file.valid_bytes(kSwapGrid), 100);
  written.data<uint8_t>()[7] ^= 1;
  EXPECT_THROW(file.verify(0, {written.raw(), static_cast<size_t>(kSwapGrid)}), IoError);
}

}  // namespace
}  // namespace nought::swap_lane_test
