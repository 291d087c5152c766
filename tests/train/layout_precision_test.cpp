// In every precision layout changes no bit, and what is learned stays near fp32.
#include "support/training_case.h"
#include <gtest/gtest.h>

namespace nought::layout_precision_test {
namespace {

using test::sharded;
using test::TrainingCase;
using test::TrainingResult;

/// Thirty steps of four rows that can be learned.
TrainingCase learning(const test::MeshLayout& mesh = {}) {
  return {.model = test::small_model("grouped_heads", 3, {{"hidden_size", 48}, {"intermediate_size", 80}}),
          .mesh = mesh,
          .settings = {.optimizer = {.weight_decay = 0.1}},
          .steps = {0, 30},
          .rows = {.of_step = 4, .length = 16, .learnable = true},
          .accumulation = 1,
          .lr = 5e-3,
          .clipping = 1};
}

/// The case at stage 0, after those of the other stages have shown the same bits in their first steps.
TrainingResult at_every_stage(TrainingCase each, int64_t steps) {
  TrainingCase first = each;
  first.steps.end = steps;
  const TrainingResult expected = first.run();
  for (const int stage : {1, 2, 3}) {
    TrainingCase other = first;
    other.mesh.stage = stage;
    SCOPED_TRACE(other.str());
    expect_same_bits(other.run(), expected);
  }
  return each.run();
}

TEST(Layouts, zero_stages_agree_bit_for_bit_in_fp16_and_skip_the_same_steps) {
  for (const int ranks : {2, 4}) {
    // 2^22 overflows at first, on some ranks and in the sum over them; a window of 8 steps tries it again.
    TrainingCase each = learning(sharded(ranks, 0)).in(DType::f16);
    each.scaler = LossScaler({.initial_power = 22, .scale_window = 8});
    each.steps.end = 40;
    const TrainingResult half = at_every_stage(each, 20);
    EXPECT_LT(half.scales.front(), 0) << "nothing overflowed, so the test says little";
    EXPECT_GE(40 - half.skipped(), 20);
    EXPECT_LT(half.losses.back(), half.losses.front() - 1);
  }
  // Without overflows half precision follows single precision.
  TrainingCase low = learning(sharded(2, 2)).in(DType::f16);
  low.scaler = LossScaler({.initial_power = 10, .scale_window = 8});
  const TrainingResult half = low.run();
  EXPECT_EQ(half.skipped(), 0);
  expect_losses_within(half, learning().run(), 0.02);
}

TEST(Layouts, gradients_may_accumulate_and_travel_in_other_dtypes) {
  TrainingCase exact = learning(sharded(4, 0));
  exact.steps.end = 12;
  const TrainingResult expected = exact.run();
  struct Dtypes {
    DType compute, sums, wire;
  };
  for (const Dtypes& dtypes : {Dtypes{DType::bf16, DType::f32, DType::f32},
                               {DType::bf16, DType::f32, DType::bf16},
                               {DType::bf16, DType::bf16, DType::f32},
                               {DType::f32, DType::f32, DType::bf16},
                               {DType::f16, DType::f32, DType::f32}})
    for (const int accumulation : {1, 2}) {
      std::vector<TrainingResult> stages;
      for (const int stage : {0, 1, 2, 3}) {
        TrainingCase each = learning(sharded(2, stage)).in(dtypes.compute);
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
  const TrainingResult wide = learning().in(DType::bf16).run();
  for (const Fp8Scaling scaling : {Fp8Scaling::delayed, Fp8Scaling::current})
    for (const int ranks : {1, 2, 4}) {
      TrainingCase each = learning(sharded(ranks, 0)).in(DType::bf16);
      each.fp8 = {.scaling = scaling, .history = 4};
      const TrainingResult first = each.run();
      EXPECT_NE(first.losses, wide.losses);
      EXPECT_NEAR(first.losses.back(), wide.losses.back(), 0.1) << name_of(scaling);
      each.steps.end = 8;
      const TrainingResult begin = each.run();
      for (const int stage : {1, 2, 3}) {
        each.mesh.stage = stage;
        each.recompute = stage == 1 ? Recompute::none : stage == 2 ? Recompute::selective : Recompute::full;
        SCOPED_TRACE(each.str());
        expect_same_bits(each.run(), begin);
      }
    }
}

/// Four micro-batches of one row are the same, one after another or on four ranks: so are their largest values.
TEST(Layouts, fp8_is_the_same_over_micro_batches_and_over_ranks) {
  TrainingCase ranks = learning(sharded(4, 2)).in(DType::bf16);
  ranks.settings.gradient_dtype = DType::f32;
  ranks.fp8 = {.scaling = Fp8Scaling::delayed, .history = 4};
  TrainingCase micro_batches = ranks;
  micro_batches.mesh = {}, micro_batches.accumulation = 4;
  expect_losses_within(ranks.run(), micro_batches.run(), 1e-2);
}

TEST(Layouts, training_without_fp32_masters_is_the_same_at_every_stage_and_learns) {
  const TrainingResult wide = learning().in(DType::bf16).run();
  for (const int ranks : {1, 2, 4}) {
    TrainingCase each = learning(sharded(ranks, 0)).in(DType::bf16);
    each.settings.optimizer.master_weights = false, each.settings.optimizer.state_dtype = DType::bf16;
    EXPECT_NEAR(at_every_stage(each, 6).losses.back(), wide.losses.back(), 0.15);
  }
}

TEST(Precision, bf16_with_fp32_masters_follows_fp32_within_one_percent) {
  const double full = learning(sharded(2, 2)).run().last_loss(10),
               half = learning(sharded(2, 2)).in(DType::bf16).run().last_loss(10);
  EXPECT_NEAR(half, full, 0.01 * full);
}

}  // namespace
}  // namespace nought::layout_precision_test
