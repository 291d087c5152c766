// In every precision layout changes no bit, and what is learned stays near fp32.
#include <numeric>

#include "support/layout_runs.h"
#include <gtest/gtest.h>

namespace nought::layout_precision_test {
namespace {

using test::expect_losses_within;
using test::expect_same_bits;
using test::Layout;
using test::Result;
using test::train;

TEST(Layouts, zero_stages_agree_bit_for_bit_in_fp16_and_skip_the_same_steps) {
  const Result exact = train({});
  for (const int ranks : {1, 2, 4}) {
    // 2^22 overflows at first, on some ranks and in the sum over them; a window of 8 steps tries it again.
    const Layout layout{.ranks = ranks, .stage = 0, .dtype = DType::f16, .steps = 40, .scale_power = 22};
    const Result first = train(layout);
    EXPECT_LT(first.scales.front(), 0) << "nothing overflowed, so the test says little";
    EXPECT_GE(std::count_if(first.scales.begin(), first.scales.end(), [](double s) { return s > 0; }), 20);
    EXPECT_LT(first.losses.back(), first.losses.front() - 1);
    for (const int stage : {1, 2, 3}) {
      Layout other = layout;
      other.stage = stage;
      SCOPED_TRACE(other.str());
      expect_same_bits(train(other), first);
    }
  }
  // Without overflows half precision follows single precision.
  const Result half = train({.ranks = 2, .stage = 2, .dtype = DType::f16, .scale_power = 10});
  EXPECT_EQ(std::count_if(half.scales.begin(), half.scales.end(), [](double s) { return s < 0; }), 0);
  expect_losses_within(half, exact, 0.02);
}

TEST(Layouts, gradients_may_accumulate_and_travel_in_other_dtypes) {
  const Result exact = train({.ranks = 4, .stage = 0});
  struct Dtypes {
    DType compute, sums, wire;
  };
  for (const Dtypes& dtypes : {Dtypes{DType::bf16, DType::f32, DType::f32},
                               {DType::bf16, DType::f32, DType::bf16},
                               {DType::bf16, DType::bf16, DType::f32},
                               {DType::f32, DType::f32, DType::bf16},
                               {DType::f16, DType::f32, DType::f32}}) {
    for (const int accumulation : {1, 2}) {
      Layout layout{.ranks = 2, .dtype = dtypes.compute, .accumulation = accumulation, .steps = 12, .scale_power = 10};
      layout.gradients = dtypes.sums, layout.wire = dtypes.wire;
      std::vector<Result> stages;
      for (const int stage : {0, 1, 2, 3}) {
        layout.stage = stage;
        layout.overlap = stage % 2 == 0;
        stages.push_back(train(layout));
      }
      SCOPED_TRACE(fmt::format("{}, sums {}, wire {}", layout.str(), name_of(dtypes.sums), name_of(dtypes.wire)));
      expect_same_bits(stages[1], stages[0]);
      expect_same_bits(stages[3], stages[2]);
      if (accumulation == 1) {
        expect_same_bits(stages[2], stages[0]);
      }
      for (size_t i = 0; i < stages[0].losses.size(); ++i) EXPECT_NEAR(stages[0].losses[i], exact.losses[i], 0.05);
    }
  }
}

/// Scales are those of all ranks' largest values, so no layout moves a bit of 8-bit training.
TEST(Layouts, fp8_is_the_same_at_every_stage_and_with_recompute_and_learns_as_bf16_does) {
  const Result wide = train({.dtype = DType::bf16});
  for (const Fp8Scaling scaling : {Fp8Scaling::delayed, Fp8Scaling::current})
    for (const int ranks : {1, 2, 4}) {
      const Result first = train({.ranks = ranks, .dtype = DType::bf16, .fp8 = scaling});
      EXPECT_NE(first.losses, wide.losses);
      EXPECT_NEAR(first.losses.back(), wide.losses.back(), 0.1) << name_of(scaling);
      for (const int stage : {1, 2, 3}) {
        Layout layout{.ranks = ranks, .stage = stage, .dtype = DType::bf16, .fp8 = scaling};
        SCOPED_TRACE(layout.str());
        layout.recompute = stage == 1 ? Recompute::none : stage == 2 ? Recompute::selective : Recompute::full;
        expect_same_bits(train(layout), first);
      }
    }
}

/// Four micro-batches of one row are the same, one after another or on four ranks: so are their largest values.
TEST(Layouts, fp8_is_the_same_over_micro_batches_and_over_ranks) {
  const Layout ranks{.ranks = 4, .stage = 2, .dtype = DType::bf16, .gradients = DType::f32, .fp8 = Fp8Scaling::delayed};
  const Layout micro_batches{
      .dtype = DType::bf16, .accumulation = 4, .gradients = DType::f32, .fp8 = Fp8Scaling::delayed};
  expect_losses_within(train(ranks), train(micro_batches), 1e-2);
}

TEST(Layouts, training_without_fp32_masters_is_the_same_at_every_stage_and_learns) {
  const Result wide = train({.dtype = DType::bf16});
  for (const int ranks : {1, 2, 4}) {
    const Result first = train({.ranks = ranks, .dtype = DType::bf16, .masters = false});
    EXPECT_NEAR(first.losses.back(), wide.losses.back(), 0.15);
    for (const int stage : {1, 2, 3})
      expect_same_bits(train({.ranks = ranks, .stage = stage, .dtype = DType::bf16, .masters = false}), first);
  }
}

TEST(Precision, bf16_with_fp32_masters_follows_fp32_within_one_percent) {
  const Result full = train({.ranks = 2, .stage = 2}), half = train({.ranks = 2, .stage = 2, .dtype = DType::bf16});
  const auto end = [](const Result& result) {  // the mean of the last ten steps
    return std::accumulate(result.losses.end() - 10, result.losses.end(), 0.0) / 10;
  };
  EXPECT_NEAR(end(half), end(full), 0.01 * end(full));
}

}  // namespace
}  // namespace nought::layout_precision_test
