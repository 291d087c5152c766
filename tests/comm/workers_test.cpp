// Workers: the replicas of a mesh as jobs of their own.
#include "nought/comm/workers.h"

#include <gtest/gtest.h>

#include "nought/comm/thread.h"

namespace nought::workers_test {
namespace {

TEST(Workers, ranks_of_a_worker_form_a_mesh_and_those_of_one_place_are_peers) {
  run_ranks(8, [](Communicator& world) {
    const GridSizes sizes{.replicate = 2, .shard = 2, .pipeline = 2};
    const Workers workers(world, sizes);
    const Grid grid(sizes);
    EXPECT_EQ(workers.count(), 2);
    EXPECT_EQ(workers.index(), grid.coordinate(world.rank(), Axis::replicate));
    EXPECT_EQ(workers.mesh().grid().ranks(), 4);
    EXPECT_EQ(workers.mesh().group(Group::replicas).size(), 1);
    for (const Axis axis : {Axis::shard, Axis::pipeline})
      EXPECT_EQ(workers.mesh().coordinate(axis), grid.coordinate(world.rank(), axis));
    EXPECT_EQ(workers.peers().rank(), workers.index());
    std::array<double, 1> sum{static_cast<double>(world.rank())}, across = sum;
    all_reduce_values(workers.mesh().group(Group::norm), Context::cpu(), sum);
    all_reduce_values(workers.numbers(), Context::cpu(), across);
    double inside = 0, peers = 0;
    for (int rank = 0; rank < 8; ++rank) {
      if (grid.coordinate(rank, Axis::replicate) == workers.index()) inside += rank;
      if (grid.coordinate(rank, Axis::shard) == grid.coordinate(world.rank(), Axis::shard) &&
          grid.coordinate(rank, Axis::pipeline) == grid.coordinate(world.rank(), Axis::pipeline))
        peers += rank;
    }
    EXPECT_EQ(sum[0], inside);
    EXPECT_EQ(across[0], peers);
  });
}

TEST(Workers, what_is_sent_in_all_groups_is_counted_once) {
  run_ranks(2, [](Communicator& world) {
    const Workers workers(world, {.replicate = 2});
    const Context context = Context::cpu();
    workers.peers().all_reduce(context.zeros({8}, DType::f32)).wait();
    workers.numbers().all_reduce(context.zeros({2}, DType::f64)).wait();
    EXPECT_EQ(workers.traffic().total_bytes(), 8 * 4 + 2 * 8);
  });
}

}  // namespace
}  // namespace nought::workers_test
