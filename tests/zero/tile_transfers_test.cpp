// What crosses between a device and the host arrives, is counted, and is waited for.
#include "nought/zero/tile_transfers.h"

#include "support/guarded_context.h"
#include <gtest/gtest.h>

namespace nought::tile_transfers_test {
namespace {

TEST(TileTransfers, bring_what_the_compute_stream_has_made_and_send_what_it_reads) {
  const Context context = test::guarded_context();
  DeviceCopies copies(context, "states");
  TileTransfers transfers(context, &copies, nullptr, 2);
  const Tensor from = context.zeros({5}, DType::bf16), to = context.zeros({5}, DType::f32);
  context.run(Fill{.x = from, .value = 3});
  transfers.begin(8);
  const Tensor down = transfers.room(1, TileTransfers::Room::gradients, {2, 7}, DType::bf16);
  transfers.down(from, down, 1);
  transfers.arrive(1);
  EXPECT_EQ(down.to_vector<float>(), std::vector<float>(5, 3));
  const Tensor up = transfers.room(0, TileTransfers::Room::directions, {0, 5}, DType::f32);
  std::fill_n(up.data<float>(), 5, 7.0F);
  transfers.up(up, to, 0);
  transfers.end();
  EXPECT_EQ(context.to_host<float>(to), std::vector<float>(5, 7));
  EXPECT_EQ(copies.bytes_down(), 10);
  EXPECT_EQ(copies.bytes_up(), 20);
}

}  // namespace
}  // namespace nought::tile_transfers_test
