// Layout never changes the result: stages, rank counts, accumulation, recompute and overlap walk the same path.
#include "support/sweep.h"
#include "support/temp_folder.h"
#include "support/training_case.h"
#include <gtest/gtest.h>

namespace nought::layouts_test {
namespace {

using test::sharded;
using test::TrainingCase;
using test::TrainingResult;

/// Steps of twelve rows that can be learned.
TrainingCase learning(const test::MeshLayout& mesh = {}) {
  TrainingCase each =
      test::learning(test::small_model("grouped_heads", 3, {{"hidden_size", 48}, {"intermediate_size", 80}}), mesh);
  each.steps.end = 4, each.lr = 5e-3;
  each.rows.of_step = 12, each.rows.length = 16;
  return each;
}

/// Thirty steps of four rows.
TrainingCase thirty_steps(const test::MeshLayout& mesh = {}) {
  TrainingCase each = learning(mesh);
  each.steps.end = 30, each.rows.of_step = 4;
  return each;
}

class Structures : public ::testing::TestWithParam<const char*> {};

TEST_P(Structures, have_the_same_bits_at_every_zero_stage_in_every_dtype) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int ranks : {2, 3}) {
      TrainingCase each = learning(sharded(ranks, 0)).in(dtype);
      each.model = test::small_model(GetParam());
      each.steps = {0, 3};
      test::same_at_every_stage(each);
    }
}

INSTANTIATE_TEST_SUITE_P(Models, Structures, ::testing::ValuesIn(test::small_models()), test::name_of_structure);

TEST(Layouts, rank_counts_agree_within_rounding_over_thirty_steps_that_learn) {
  TrainingCase each = learning();
  each.steps = {0, 30};
  const TrainingResult one = each.run();
  EXPECT_LT(one.losses.back(), one.losses.front() - 1) << "the model does not learn, so the test says little";
  for (const int ranks : {2, 4}) {
    each.mesh = sharded(ranks, ranks - 1);
    expect_losses_within(each.run(), one, 1e-5);
  }
}

TEST(Layouts, what_gradients_are_divided_by_before_their_sum_changes_no_more_than_rounding) {
  const TrainingCase plain = learning(sharded(4, 2));
  TrainingCase power = plain, other = plain;
  power.gradient_factor = 4;  // the ranks' own means: a power of two moves no bit
  other.gradient_factor = 4 / 3.0;
  const TrainingResult expected = plain.run();
  expect_same_bits(power.run(), expected);
  expect_losses_within(other.run(), expected, 1e-5);
}

/// And the wire's dtype where it is another one.
TEST(Layouts, buckets_and_overlap_change_no_bit) {
  int turn = 0;
  for (const int ranks : {2, 4})
    for (const int accumulation : {1, 3})
      for (const std::optional<DType>& wire : {std::optional<DType>(), std::optional(DType::f32)}) {
        if (ranks > 2 && accumulation > 1 && !test::runs_everything()) continue;
        std::vector<TrainingResult> stages;
        for (const int stage : {0, 1, 2, 3}) {
          TrainingCase each = learning(sharded(ranks, stage)).in(DType::bf16);
          each.accumulation = accumulation;
          each.settings.wire_dtype = wire;
          stages.push_back(each.run());
          for (const int64_t bucket : {0, 12'000, 1'000'000}) {
            if (!test::samples(turn++, 2)) continue;
            each.settings.reduce_bucket = each.settings.gather_bucket = bucket;
            each.settings.overlap = bucket == 12'000;
            expect_same_bits(each.run(), stages.back());
          }
        }
        expect_same_bits(stages[1], stages[0]);
        expect_same_bits(stages[3], stages[2]);
        if (accumulation == 1) expect_same_bits(stages[2], stages[0]);
      }
}

TEST(Layouts, micro_batches_equal_one_of_all_rows) {
  TrainingCase each = learning();
  const TrainingResult whole = each.run();
  each.accumulation = 4;
  expect_losses_within(each.run(), whole, 1e-5);
  for (const int stage : {0, 2}) {
    each.mesh = sharded(2, stage);
    each.accumulation = 2;
    expect_losses_within(each.run(), whole, 1e-5);
  }
}

TEST(Layouts, recompute_changes_no_bit) {
  for (const TrainingCase& base : {learning(), learning(sharded(2, 3)), learning(sharded(2, 2)).in(DType::bf16)}) {
    std::vector<RecomputeOptions> ways{Recompute::selective, Recompute::full};
    for (const int64_t checkpoints : {1, 2})  // of three blocks
      for (const Pool pool : {Pool::device, Pool::host}) {
        ways.emplace_back(Recompute::full);
        ways.back().checkpoints = checkpoints;
        ways.back().tier.pool = pool;
        ways.back().contiguous = (checkpoints == 1) == (pool == Pool::host);
      }
    const TrainingResult plain = base.run();
    for (const RecomputeOptions& way : ways) {
      TrainingCase recomputed = base;
      recomputed.recompute = way;
      expect_same_bits(recomputed.run(), plain);
    }
  }
}

/// A host read, a missing wait or a buffer that goes back too early would be a fault or another number there.
TEST(Layouts, a_device_that_runs_late_and_that_the_host_cannot_read_gives_the_same_bits) {
  TrainingCase half = learning().in(DType::f16), kept = learning(), packed = learning().in(DType::bf16),
               delayed = packed, current = packed;
  half.scaler = LossScaler({.initial_power = 22, .scale_window = 8}), half.steps = {0, 8};
  kept.accumulation = 2, kept.recompute = Recompute::full, kept.recompute.tier.pool = Pool::host;
  packed.model.tie_word_embeddings = true;
  packed.settings.gradient_dtype = DType::f32, packed.settings.wire_dtype = DType::bf16;
  packed.settings.reduce_bucket = packed.settings.gather_bucket = 40'000;
  delayed.fp8 = {.scaling = Fp8Scaling::delayed, .history = 4}, delayed.settings.overlap = false;
  current.fp8.scaling = Fp8Scaling::current;
  current.settings.optimizer.master_weights = false, current.settings.optimizer.state_dtype = DType::bf16;
  for (TrainingCase each : {learning(), delayed, current, half, kept, packed})
    for (const auto& mesh : {sharded(1, 0), sharded(2, 0), sharded(2, 3)}) {
      each.mesh = mesh, each.guarded = false;
      const TrainingResult expected = each.run();
      each.guarded = true;
      expect_same_bits(each.run(), expected);
    }
}

/// Clipping is on, and half precision skips its first steps. Each layout runs without; with states on the host beside
/// the guarded device; in a file beside either device. Then parameters live elsewhere too, or they alone.
TEST(Layouts, where_optimizer_states_and_parameters_live_changes_no_bit) {
  const test::TempFolder folder;
  const OffloadOptions host{.tier = {Pool::host}, .sub_group = 5000};
  const OffloadOptions file{.tier = {Pool::file, folder.path().string()},
                            .sub_group = 20'000,
                            .reads_ahead = true,
                            .writes_behind = true,
                            .buffers = 12};
  TrainingCase half = learning().in(DType::f16), lion = learning(), muon = learning().in(DType::bf16), codes = muon,
               wide = muon;
  half.scaler = LossScaler({.initial_power = 22, .scale_window = 8}), half.steps = {0, 8};
  lion.accumulation = 2, lion.settings.optimizer.method = LionOptions{};
  muon.settings.optimizer.method = MuonOptions{};
  codes.settings.optimizer.state_block = 256;
  wide.accumulation = 3, wide.model.tie_word_embeddings = true, wide.settings.gradient_dtype = DType::f32;
  int turn = 0;
  for (const TrainingCase& base : {half, lion, muon, codes, wide})
    for (const int ranks : {1, 2}) {
      if (!test::samples(turn + turn / 2, 2)) {  // each case has one of the numbers of ranks
        ++turn;
        continue;
      }
      TrainingCase each = base;
      each.mesh = sharded(ranks, turn++ % 4);
      const TrainingResult expected = each.run();
      for (const auto& [offload, guarded] : {std::pair(host, true), {file, false}, {file, true}}) {
        each.settings.offload_optimizer = offload, each.guarded = guarded;
        expect_same_bits(each.run(), expected);
      }
      each.guarded = false, each.settings.offload_optimizer = {}, each.mesh.stage = 3;
      const TrainingResult whole = each.run();
      const ParameterOffload on_host{.tier = {Pool::host}};
      // Buffers for one Unit, for two, and for all.
      const ParameterOffload in_file{.tier = {Pool::file,
                                              folder.path().string(),
                                              {.backend = turn % 2 == 0 ? AioBackend::threads : AioBackend::automatic}},
                                     .buffers = 1 + turn % 3,
                                     .buffer_size = turn % 3 == 2 ? 1'000'000 : 20'000,
                                     .in_memory = turn % 2 == 0 ? 30'000 : 0};
      each.recompute = turn % 2 == 0 ? Recompute::full : Recompute::none;
      for (const auto& [states, offload, guarded] :
           {std::tuple(host, on_host, true), {OffloadOptions{}, in_file, false}, {file, in_file, turn % 2 == 0}}) {
        each.settings.offload_optimizer = states, each.settings.offload_param = offload, each.guarded = guarded;
        expect_same_bits(each.run(), whole);
      }
    }
}

TEST(Layouts, zero_stages_agree_bit_for_bit_in_fp16_and_skip_the_same_steps) {
  for (const int ranks : {2, 4}) {
    // 2^22 overflows at first, on some ranks and in the sum over them; a window of 8 steps tries it again.
    TrainingCase each = thirty_steps(sharded(ranks, 0)).in(DType::f16);
    each.scaler = LossScaler({.initial_power = 22, .scale_window = 8});
    each.steps.end = 40;
    const TrainingResult half = each.run();
    EXPECT_LT(half.scales.front(), 0) << "nothing overflowed, so the test says little";
    EXPECT_GE(40 - half.skipped(), 20);
    EXPECT_LT(half.losses.back(), half.losses.front() - 1);
    each.steps.end = 20;
    test::same_at_every_stage(each);
  }
  // Without overflows half precision follows single precision.
  TrainingCase low = thirty_steps(sharded(2, 2)).in(DType::f16);
  low.scaler = LossScaler({.initial_power = 10, .scale_window = 8});
  const TrainingResult half = low.run();
  EXPECT_EQ(half.skipped(), 0);
  expect_losses_within(half, thirty_steps().run(), 0.02);
}

TEST(Layouts, gradients_may_accumulate_and_travel_in_other_dtypes) {
  TrainingCase exact = thirty_steps(sharded(4, 0));
  exact.steps.end = 12;
  const TrainingResult expected = exact.run();
  struct Dtypes {
    DType compute, sums, wire;
  };
  int turn = 0;
  for (const Dtypes& dtypes : {Dtypes{DType::bf16, DType::f32, DType::f32},
                               {DType::bf16, DType::f32, DType::bf16},
                               {DType::bf16, DType::bf16, DType::f32},
                               {DType::f32, DType::f32, DType::bf16},
                               {DType::f16, DType::f32, DType::f32}})
    for (const int accumulation : {1, 2}) {
      const int case_turn = turn++;
      if (!test::samples(case_turn + case_turn / 2, 2)) continue;  // each of the dtypes has one of the numbers
      std::vector<TrainingResult> stages;
      for (const int stage : {0, 1, 2, 3}) {
        TrainingCase each = thirty_steps(sharded(2, stage)).in(dtypes.compute);
        each.accumulation = accumulation, each.steps.end = 12;
        if (dtypes.compute == DType::f16) each.scaler = LossScaler({.initial_power = 10, .scale_window = 8});
        each.settings.gradient_dtype = dtypes.sums, each.settings.wire_dtype = dtypes.wire;
        each.settings.overlap = stage % 2 == 0;
        stages.push_back(each.run());
      }
      SCOPED_TRACE(fmt::format("{}, sums {}, wire {}, {} micro-batches", name_of(dtypes.compute), name_of(dtypes.sums),
                               name_of(dtypes.wire), accumulation));
      expect_same_bits(stages[1], stages[0]);
      expect_same_bits(stages[3], stages[2]);
      if (accumulation == 1) expect_same_bits(stages[2], stages[0]);
      expect_losses_within(stages[0], expected, 0.05);
    }
}

/// Scales are those of all ranks' largest values, so no layout moves a bit of 8-bit training.
TEST(Layouts, fp8_is_the_same_at_every_stage_and_with_recompute_and_learns_as_bf16_does) {
  const TrainingResult wide = thirty_steps().in(DType::bf16).run();
  for (const Fp8Scaling scaling : {Fp8Scaling::delayed, Fp8Scaling::current})
    for (const int ranks : {1, 2, 4}) {
      TrainingCase each = thirty_steps(sharded(ranks, 0)).in(DType::bf16);
      each.fp8 = {.scaling = scaling, .history = 4};
      const TrainingResult first = each.run();
      EXPECT_NE(first.losses, wide.losses);
      EXPECT_NEAR(first.losses.back(), wide.losses.back(), 0.1) << name_of(scaling);
      each.steps.end = 8;
      test::same_at_every_stage(each);
    }
}

/// Four micro-batches of one row are the same, one after another or on four ranks: so are their largest values.
TEST(Layouts, fp8_is_the_same_over_micro_batches_and_over_ranks) {
  TrainingCase ranks = thirty_steps(sharded(4, 2)).in(DType::bf16);
  ranks.settings.gradient_dtype = DType::f32;
  ranks.fp8 = {.scaling = Fp8Scaling::delayed, .history = 4};
  TrainingCase micro_batches = ranks;
  micro_batches.mesh = {}, micro_batches.accumulation = 4;
  expect_losses_within(ranks.run(), micro_batches.run(), 1e-2);
}

TEST(Layouts, training_without_fp32_masters_is_the_same_at_every_stage_and_learns) {
  const TrainingResult wide = thirty_steps().in(DType::bf16).run();
  for (const int ranks : {1, 2, 4}) {
    TrainingCase each = thirty_steps(sharded(ranks, 0)).in(DType::bf16);
    each.settings.optimizer.master_weights = false, each.settings.optimizer.state_dtype = DType::bf16;
    EXPECT_NEAR(each.run().losses.back(), wide.losses.back(), 0.15);
    each.steps.end = 6;
    test::same_at_every_stage(each);
  }
}

TEST(Precision, bf16_with_fp32_masters_follows_fp32_within_one_percent) {
  const double full = thirty_steps(sharded(2, 2)).run().last_loss(10),
               half = thirty_steps(sharded(2, 2)).in(DType::bf16).run().last_loss(10);
  EXPECT_NEAR(half, full, 0.01 * full);
}

}  // namespace
}  // namespace nought::layouts_test
