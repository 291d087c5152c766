// Updates that run overlapped with the backward pass, before it is known whether their step is clipped or skipped, have
// the bits of updates behind it: with none, some and all of the steps clipped, and those of fp16 that overflow.
#include <algorithm>
#include <cmath>

#include "support/guarded_context.h"
#include "support/message_of.h"
#include "support/sweep.h"
#include "support/temp_folder.h"
#include "support/training_case.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::undone_update_test {
namespace {

using test::AloneRank;
using test::expect_same_bits;
using test::MeshLayout;
using test::sharded;
using test::TrainingCase;
using test::TrainingRank;
using test::TrainingResult;

class UndoneUpdates : public testing::Test {
 protected:
  OffloadOptions files(int64_t sub_group = 1000) const {
    return {.tier = {Pool::file, folder_.path().string(), {.backend = AioBackend::threads}},
            .sub_group = sub_group,
            .reads_ahead = true,
            .writes_behind = true,
            .buffers = 12};
  }
  static OffloadOptions guessing(OffloadOptions options) {
    options.early = options.undo = true;
    return options;
  }
  test::TempFolder folder_;
};

TrainingCase ten_steps(const MeshLayout& layout, DType dtype) {
  TrainingCase each = test::learning(test::small_model("grouped_heads"), layout);
  each.steps.end = 10, each.rows.of_step = 8, each.accumulation = 2, each.lr = 1e-2;
  each.clipping = 0;
  return each.in(dtype);
}

/// The norm above which this share of the steps is.
double limit_of(const TrainingResult& result, double share) {
  std::vector<double> norms = result.norms;
  std::sort(norms.begin(), norms.end());
  const auto clipped = static_cast<size_t>(std::lround(share * static_cast<double>(norms.size())));
  if (clipped == 0) return 2 * norms.back();
  if (clipped == norms.size()) return norms.front() / 2;
  const size_t last = norms.size() - clipped;
  return (norms[last - 1] + norms[last]) / 2;
}

/// A limit changes the norms that come after: one that clips the step with the largest norm of those without it.
TEST_F(UndoneUpdates, have_the_bits_of_the_serial_order_with_none_some_and_all_steps_clipped) {
  int turn = 0, combination = 0;
  for (const int ranks : {1, 2, 4})
    for (int stage = 0; stage <= (ranks == 1 ? 0 : 3); ++stage)
      for (const DType dtype : {DType::f32, DType::bf16}) {
        if (ranks > 1 && (stage + ranks / 2 + (dtype == DType::f32)) % 2 == 0) continue;  // not each by each
        if (!test::samples(combination++, 3)) continue;
        TrainingCase serial = ten_steps(sharded(ranks, stage), dtype);
        const TrainingResult free = serial.run();
        for (const double share : {0.0, 0.1, 1.0}) {
          serial.clipping = limit_of(free, share);
          serial.guarded = false;
          const TrainingResult expected = serial.run();
          const auto clipped = std::count_if(expected.norms.begin(), expected.norms.end(),
                                             [&](double norm) { return norm > serial.clipping; });
          EXPECT_EQ(clipped > 0, share > 0);
          EXPECT_EQ(clipped == 10, share == 1);
          TrainingCase each = serial;
          each.guarded = ++turn % 3 == 0;
          each.settings.offload_optimizer =
              guessing(turn % 3 == 0   ? OffloadOptions{.tier = {Pool::host}, .sub_group = 1000}
                       : turn % 3 == 1 ? files()
                                       : OffloadOptions{});
          SCOPED_TRACE(fmt::format("{}, {} of it clipped, turn {}", each.str(), share, turn % 3));
          expect_same_bits(each.run(), expected);
        }
      }
}

/// The scale starts so high that the first steps overflow, and grows until others do.
TEST_F(UndoneUpdates, of_steps_that_overflow_leave_nothing) {
  for (const int stage : {0, 1, 2, 3})
    for (const bool masters : {true, false}) {
      TrainingCase serial = ten_steps(sharded(2, stage), DType::f16);
      serial.settings.optimizer.master_weights = masters;
      serial.clipping = 1;
      serial.scaler = LossScaler({.initial_power = 24, .scale_window = 2, .hysteresis = 1});
      const TrainingResult expected = serial.run();
      EXPECT_GE(expected.skipped(), 2);
      EXPECT_LE(expected.skipped(), 8);
      for (const OffloadOptions& offload : {files(), OffloadOptions{}}) {
        TrainingCase each = serial;
        each.settings.offload_optimizer = guessing(offload);
        SCOPED_TRACE(each.str());
        expect_same_bits(each.run(), expected);
      }
    }
}

TEST_F(UndoneUpdates, leave_checkpoints_that_any_run_resumes) {
  TrainingCase serial = ten_steps(sharded(2, 1), DType::bf16);
  serial.clipping = limit_of(serial.run(), 0.3);
  const TrainingResult whole = serial.run();
  TrainingCase guesses = serial;
  guesses.settings.offload_optimizer = guessing(files());
  expect_same_bits(resumed_at(5, guesses, serial), whole, 5);
  expect_same_bits(resumed_at(5, serial, guesses), whole, 5);
}

/// All is infinite from the first loss on.
TEST_F(UndoneUpdates, leave_the_weights_of_the_step_before_where_one_is_not_finite) {
  for (const OnNonfinite on_nonfinite : {OnNonfinite::stop, OnNonfinite::skip}) {
    TrainingCase each = ten_steps({}, DType::f32);
    each.settings.offload_optimizer = guessing(files()), each.clipping = 1, each.on_nonfinite = on_nonfinite;
    each.lr = 1e30;  // the second step's loss is not finite
    each.on_ranks([&](TrainingRank& rank) {
      rank.step(0);
      const auto before = rank.weights();
      std::string message;
      if (on_nonfinite == OnNonfinite::skip) {
        EXPECT_TRUE(rank.step(1).skipped);
      } else {
        message = test::message_of<Error>([&] { rank.step(1); });
        EXPECT_THAT(message, testing::HasSubstr("the weights are those of the step before"));
      }
      expect_same_bits(rank.weights(), before);
    });
  }
}

TEST_F(UndoneUpdates, end_after_some_in_a_row_which_is_said_once) {
  TrainingCase each = ten_steps({}, DType::bf16);
  each.settings.offload_optimizer = guessing(files());
  each.on_ranks([&](TrainingRank& rank) {
    std::vector<int64_t> written;
    int told = 0;
    for (int step = 0; step < 20; ++step) {
      rank.of.clipping = step < 6 || step > 14 ? 1e-3 : 1e3;
      told += !rank.step(step % 10).guess.empty();
      EXPECT_EQ(told, step < 2 ? 0 : 1) << step;
    }
    // Three, and from the eighth in a row on that would have been right: one right, three wrong.
    EXPECT_EQ(rank.engine.guess().tried(), 3 + 1 + 3);
    EXPECT_EQ(rank.engine.guess().wrong(), 3 + 3);
  });
}

}  // namespace
}  // namespace nought::undone_update_test
