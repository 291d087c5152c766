// Beside a GPU, wherever states, gradients, parameters and saved inputs are: the bits of a run that moves nothing.
#include <map>
#include <thread>
#include <tuple>
#include <vector>

#include "support/temp_folder.h"
#include "support/training_case.h"
#include <gtest/gtest.h>

#include "nought/cuda/backend/kernels.h"

namespace nought::offload_test {
namespace {

using test::TrainingResult;

struct Moves {
  ShardedModel::Options sharding = {.dtype = DType::bf16, .gradient_dtype = DType::bf16};
  RecomputeOptions recompute = {};
};

/// Two steps of two micro-batches.
TrainingResult run_on(int ranks, int stage, const Moves& moves) {
  test::TrainingCase each{.model = test::small_model("qk_norms", /*layers=*/1),
                          .mesh = test::sharded(ranks, stage),
                          .settings = moves.sharding,
                          .steps = {0, 2},
                          .rows = {.of_step = 8, .length = 4},
                          .accumulation = 2,
                          .recompute = moves.recompute};
  for (int rank = 0; rank < ranks; ++rank) each.contexts.push_back(cuda::make_context({.poison = true}));
  return each.run();
}

class CudaOffload : public ::testing::Test {
 protected:
  OffloadOptions to(Pool pool) const {
    OffloadOptions options{.tier = {pool}, .sub_group = 700};
    if (pool != Pool::file) return options;
    options.tier.folder = folder_.path().string(), options.tier.aio.backend = AioBackend::threads;
    options.reads_ahead = options.writes_behind = true, options.buffers = 12;
    return options;
  }
  ParameterOffload parameters_in(Pool pool) const {
    return {.tier = {pool, folder_.path().string(), {.backend = AioBackend::threads}}, .buffers = 2};
  }
  void expect_same_bits(int ranks, int stage, const Moves& moves, const Moves& stays = {}) {
    // Stages 2 and 3 add up shards, in the same order.
    TrainingResult& expected =
        known_[{ranks, ranks > 1 && stage > 1, stays.sharding.offload_optimizer.delay_after.has_value()}];
    if (expected.losses.empty()) expected = run_on(ranks, stage, stays);
    test::expect_same_bits(run_on(ranks, stage, moves), expected);
  }

  test::TempFolder folder_;
  static inline std::map<std::tuple<int, bool, bool>, TrainingResult> known_;
};

TEST_F(CudaOffload, of_states_changes_no_bit) {
  for (const auto& [ranks, stage, pool] :
       {std::tuple(1, 3, Pool::file), {2, 1, Pool::host}, {2, 2, Pool::file}, {2, 3, Pool::host}}) {
    Moves moves;
    moves.sharding.offload_optimizer = to(pool);
    expect_same_bits(ranks, stage, moves);
  }
}

TEST_F(CudaOffload, of_parameters_changes_no_bit) {
  for (const auto& [ranks, pool] : {std::pair(1, Pool::file), {2, Pool::host}, {2, Pool::file}}) {
    Moves moves;
    moves.sharding.offload_param = parameters_in(pool);
    if (ranks == 1) moves.sharding.offload_optimizer = to(pool);
    expect_same_bits(ranks, 3, moves);
  }
}

TEST_F(CudaOffload, of_gradients_and_inputs_changes_no_bit) {
  Moves files;
  files.sharding.offload_optimizer = to(Pool::file);
  files.sharding.offload_optimizer.gradients_in_file = true;
  files.recompute = Recompute::full;
  files.recompute.tier.pool = Pool::file, files.recompute.tier.folder = folder_.path().string();
  expect_same_bits(2, 2, files);
  Moves host;
  host.recompute = Recompute::full;
  host.recompute.tier.pool = Pool::host;
  expect_same_bits(1, 2, host);
}

TEST_F(CudaOffload, of_a_part_of_the_states_changes_no_bit) {
  Moves moves;
  moves.sharding.offload_optimizer = to(Pool::host);
  moves.sharding.offload_optimizer.ratio = 0.5;
  expect_same_bits(2, 2, moves);
}

TEST_F(CudaOffload, overlapped_with_the_passes_changes_no_bit) {
  Moves late;
  late.sharding.offload_optimizer.delay_after = 0;
  for (const Pool pool : {Pool::host, Pool::file}) {
    Moves moves = late;
    moves.sharding.offload_optimizer = to(pool);
    moves.sharding.offload_optimizer.delay_after = 0;
    expect_same_bits(2, 2, moves, late);
  }
}

/// A step waits for the compute stream as often as without offload, and for its states on other streams.
TEST_F(CudaOffload, waits_for_no_more_computation) {
  const auto waits_of = [](int stage, const ShardedModel::Options& sharding) {
    test::TrainingCase each{
        .mesh = test::sharded(1, stage), .settings = sharding, .rows = {.of_step = 4}, .accumulation = 2};
    each.contexts = {cuda::make_context({.poison = true})};
    return each.on_rank(0, [](test::TrainingRank& rank) {
      std::vector<int64_t> counted;
      for (int64_t step = 0; step < 2; ++step) {
        const std::vector<Batch> batches = rank.batches(step);
        const auto waits = [&] { return rank.context.stream->waits_of(std::this_thread::get_id()); };
        const int64_t before = waits();
        rank.engine.step(batches, 1, 1e-3, 1.0);
        counted.push_back(waits() - before);
      }
      return counted;
    });
  };
  ShardedModel::Options states;
  states.offload_optimizer = to(Pool::host);
  EXPECT_EQ(waits_of(0, states), (std::vector<int64_t>{1, 1}));
  ShardedModel::Options all = states;
  all.offload_param = parameters_in(Pool::host);
  EXPECT_EQ(waits_of(3, all), (std::vector<int64_t>{1, 1}));
}

}  // namespace
}  // namespace nought::offload_test
