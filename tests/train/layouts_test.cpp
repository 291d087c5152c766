// Layout never changes the result: stages, rank counts, accumulation, recompute and overlap walk the same path.
#include "support/layout_runs.h"
#include "support/temp_folder.h"
#include <gtest/gtest.h>

namespace nought::layouts_test {
namespace {

using test::expect_losses_within;
using test::expect_same_bits;
using test::Layout;
using test::Result;
using test::train;

TEST(Layouts, zero_stages_agree_bit_for_bit_and_rank_counts_within_rounding) {
  const Result one = train({.ranks = 1, .stage = 0});
  EXPECT_LT(one.losses.back(), one.losses.front() - 1) << "the model does not learn, so the test says little";
  for (const int ranks : {1, 2, 4}) {
    const Result first = train({.ranks = ranks, .stage = 0});
    for (const int stage : {1, 2, 3}) {
      const Layout layout{.ranks = ranks, .stage = stage};
      SCOPED_TRACE(layout.str());
      expect_same_bits(train(layout), first);
    }
    expect_losses_within(first, one, 1e-5);
  }
}

TEST(Layouts, what_gradients_are_divided_by_before_their_sum_changes_no_more_than_rounding) {
  const Layout layout{.ranks = 4, .stage = 2};
  Layout power = layout, other = layout;
  power.gradient_factor = 4;  // the ranks' own means: a power of two moves no bit
  other.gradient_factor = 4 / 3.0;
  const Result plain = train(layout);
  expect_same_bits(train(power), plain);
  expect_losses_within(train(other), plain, 1e-5);
}

TEST(Layouts, zero_stages_agree_bit_for_bit_in_bf16_and_with_tied_embeddings) {
  for (const int ranks : {2, 3, 4}) {
    for (const bool tied : {false, true}) {
      Layout layout{.ranks = ranks, .stage = 0, .dtype = DType::bf16, .tied = tied, .steps = 12, .rows = 2 * ranks};
      const Result first = train(layout);
      for (const int stage : {1, 2, 3}) {
        layout.stage = stage;
        SCOPED_TRACE(layout.str());
        expect_same_bits(train(layout), first);
      }
    }
  }
}

TEST(Layouts, with_accumulation_stages_0_and_1_agree_and_2_and_3_agree) {
  for (const int ranks : {1, 2}) {
    Result results[4];
    for (const int stage : {0, 1, 2, 3}) results[stage] = train({.ranks = ranks, .stage = stage, .accumulation = 2});
    expect_same_bits(results[0], results[1]);
    expect_same_bits(results[2], results[3]);
    expect_losses_within(results[0], results[2], 1e-5);
  }
}

TEST(Layouts, four_micro_batches_of_one_equal_one_of_four) {
  const Result whole = train({.ranks = 1, .accumulation = 1});
  expect_losses_within(train({.ranks = 1, .accumulation = 4}), whole, 1e-5);
  expect_losses_within(train({.ranks = 2, .stage = 2, .accumulation = 2}), whole, 1e-5);
}

TEST(Layouts, recompute_changes_no_bit) {
  for (const Layout& base :
       {Layout{.ranks = 1}, Layout{.ranks = 2, .stage = 3}, Layout{.ranks = 2, .stage = 2, .dtype = DType::bf16}}) {
    Layout recomputed = base;
    std::vector<RecomputeOptions> ways{Recompute::selective, Recompute::full};
    for (const int64_t checkpoints : {1, 2})  // of three blocks
      for (const Pool pool : {Pool::device, Pool::host}) {
        ways.emplace_back(Recompute::full);
        ways.back().checkpoints = checkpoints;
        ways.back().pool = pool;
        ways.back().contiguous = (checkpoints == 1) == (pool == Pool::host);
      }
    const Result plain = train(base);
    for (const RecomputeOptions& way : ways) {
      recomputed.recompute = way;
      SCOPED_TRACE(fmt::format("{}, {}", base.str(), way.str()));
      expect_same_bits(train(recomputed), plain);
    }
  }
}

TEST(Layouts, overlap_changes_no_bit) {
  for (const int stage : {0, 1, 2, 3}) {
    const Layout base{.ranks = 2, .stage = stage, .accumulation = 2, .steps = 8};
    Layout blocking = base;
    blocking.overlap = false;
    SCOPED_TRACE(base.str());
    expect_same_bits(train(blocking), train(base));
  }
}

TEST(Layouts, buckets_change_no_bit) {
  for (const int stage : {0, 1, 2, 3})
    for (const int accumulation : {1, 2})
      for (const std::optional<DType>& wire : {std::optional<DType>(), std::optional(DType::f32)}) {
        Layout layout{.ranks = 2, .stage = stage, .dtype = DType::bf16, .accumulation = accumulation, .steps = 6};
        layout.wire = wire;
        SCOPED_TRACE(layout.str());
        const Result alone = train(layout);
        for (const int64_t bucket : {12'000, 40'000, 1'000'000}) {
          layout.bucket = bucket;
          layout.overlap = bucket != 40'000;
          expect_same_bits(train(layout), alone);
        }
      }
}

/// A host read, a missing wait or a buffer that goes back too early would be a fault or another number there.
TEST(Layouts, a_device_that_runs_late_and_that_the_host_cannot_read_gives_the_same_bits) {
  const Layout half{.dtype = DType::f16, .steps = 10, .scale_power = 22};
  Layout kept{.accumulation = 2, .recompute = Recompute::full, .steps = 4};
  kept.recompute.pool = Pool::host;
  Layout packed{.dtype = DType::bf16, .tied = true, .steps = 4, .gradients = DType::f32, .bucket = 40'000};
  packed.wire = DType::bf16;
  const Layout layouts[] = {{.steps = 6},
                            {.dtype = DType::bf16, .overlap = false, .steps = 4, .fp8 = Fp8Scaling::delayed},
                            {.dtype = DType::bf16, .steps = 3, .fp8 = Fp8Scaling::current, .masters = false},
                            half,
                            kept,
                            packed};
  for (Layout layout : layouts)
    for (const int ranks : {1, 2})
      for (const int stage : {0, 3}) {
        layout.ranks = ranks, layout.stage = stage, layout.guarded = false;
        const Result expected = train(layout);
        layout.guarded = true;
        SCOPED_TRACE(layout.str());
        expect_same_bits(train(layout), expected);
      }
}

/// Clipping is on, and half precision skips its first steps. Each layout runs without; with states on the host beside
/// the guarded device; in a file beside either device. Then parameters live elsewhere too, or they alone.
TEST(Layouts, where_optimizer_states_and_parameters_live_changes_no_bit) {
  const test::TempFolder folder;
  const OffloadOptions host{.home = Pool::host, .sub_group = 5000};
  const OffloadOptions file{.home = Pool::file,
                            .folder = folder.path().string(),
                            .sub_group = 20'000,
                            .reads_ahead = true,
                            .writes_behind = true,
                            .buffers = 12};
  Layout half{.dtype = DType::f16, .steps = 8, .scale_power = 22}, lion{.accumulation = 2, .steps = 4};
  lion.method = LionOptions{};
  Layout muon{.dtype = DType::bf16, .steps = 4}, codes{.dtype = DType::bf16, .steps = 4};
  muon.method = MuonOptions{};
  codes.state_block = 256;
  Layout wide{.dtype = DType::bf16, .accumulation = 4, .tied = true, .steps = 4, .gradients = DType::f32};
  int turn = 0;
  for (const Layout& base : {half, lion, muon, codes, wide})
    for (const int ranks : {1, 2, 4}) {
      if (ranks == 4 && base.accumulation > 1) continue;
      Layout layout = base;
      layout.ranks = ranks, layout.stage = turn++ % 4;
      if (ranks * layout.accumulation > layout.rows) layout.rows = 2 * layout.rows;
      const Result expected = train(layout);
      for (const auto& [offload, guarded] : {std::pair(host, true), {file, false}, {file, true}}) {
        layout.offload = offload, layout.guarded = guarded;
        SCOPED_TRACE(layout.str());
        expect_same_bits(train(layout), expected);
      }
      layout.guarded = false, layout.offload = {}, layout.stage = 3;
      const Result sharded = train(layout);
      const ParameterHome on_host{.home = Pool::host};
      // Buffers for one Unit, for two, and for all.
      const ParameterHome in_file{.home = Pool::file,
                                  .folder = folder.path().string(),
                                  .buffers = 1 + turn % 3,
                                  .buffer_size = turn % 3 == 2 ? 1'000'000 : 20'000,
                                  .in_memory = turn % 2 == 0 ? 30'000 : 0,
                                  .aio = {.backend = turn % 2 == 0 ? AioBackend::threads : AioBackend::automatic}};
      layout.recompute = turn % 2 == 0 ? Recompute::full : Recompute::none;
      for (const auto& [states, home, guarded] :
           {std::tuple(host, on_host, true), {OffloadOptions{}, in_file, false}, {file, in_file, turn % 2 == 0}}) {
        layout.offload = states, layout.parameters = home, layout.guarded = guarded;
        SCOPED_TRACE(layout.str());
        expect_same_bits(train(layout), sharded);
      }
    }
}

}  // namespace
}  // namespace nought::layouts_test
