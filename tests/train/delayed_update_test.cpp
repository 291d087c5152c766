// An update that is put off by one step: theta(t + 1) = theta(t) - A(g(theta(t - 1))), on every layout with the same
// bits, wherever states are, and in what resumes.
#include <atomic>
#include <cmath>
#include <limits>
#include <thread>

#include "support/guarded_context.h"
#include "support/message_of.h"
#include "support/swap_fault.h"
#include "support/sweep.h"
#include "support/temp_folder.h"
#include "support/training_case.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/checkpoint/checkpoint.h"
#include "nought/comm/thread.h"

namespace nought::delayed_update_test {
namespace {

using test::AloneRank;
using test::expect_same_bits;
using test::MeshLayout;
using test::sharded;
using test::TrainingCase;
using test::TrainingRank;
using test::TrainingResult;
using test::WholeTensors;

/// Plain SGD on one row a step.
TrainingCase sgd(std::optional<int64_t> delay_after, bool guarded = false) {
  TrainingCase each = test::learning(test::small_model("grouped_heads"));
  each.settings.optimizer = {.method = SgdOptions{}};
  each.settings.offload_optimizer = {.tier = {Pool::host}, .delay_after = delay_after};
  each.rows.of_step = 1;
  each.lr = 0.1, each.clipping = 0, each.guarded = guarded;
  return each;
}

TEST(DelayedUpdate, follows_its_formula_with_clipping) {
  for (const bool guarded : {false, true}) {
    TrainingCase each = sgd(1, guarded);
    each.clipping = 0.5;
    AloneRank alone(each);
    TrainingRank& run = alone.rank;
    WholeTensors theta = run.weights(), g_before;
    const WholeTensors before = theta;
    double scale_before = 0;
    for (int64_t step = 1; step <= 5; ++step) {
      run.of.lr = 0.1 * static_cast<double>(step);  // each update takes the rate of its own gradients
      const WholeTensors g = run.gradients(step);
      const double scale = run.of.lr * std::min(1.0, 0.5 / (run.step(step).grad_norm + 1e-6));
      if (step == 3) {
        EXPECT_LT(scale, run.of.lr) << "clipping is active";
      }
      // The first update is an ordinary one; the second step applies none.
      const WholeTensors& applied = step == 1 ? g : g_before;
      const double factor = step == 1 ? scale : step == 2 ? 0 : scale_before;
      const WholeTensors seen = run.weights();
      for (const auto& [name, values] : theta)
        for (size_t i = 0; i < values.size(); ++i) {
          const double want = values[i] - (factor == 0 ? 0.0 : factor * applied.at(name)[i]);
          ASSERT_NEAR(seen.at(name)[i], want, 1e-6 * std::max(1.0, std::abs(want))) << name << ", step " << step;
        }
      if (step == 2) expect_same_bits(seen, theta);
      theta = seen, g_before = g, scale_before = scale;
    }
    EXPECT_TRUE(run.model.optimizer().pending());
    run.model.finish_pending_update();
    EXPECT_FALSE(run.model.optimizer().pending());
    const WholeTensors last = run.weights();
    EXPECT_TRUE(last != theta);
    run.model.finish_pending_update();
    EXPECT_TRUE(run.weights() == last) << "exactly one is applied";
    EXPECT_TRUE(last != before);
  }
}

TEST(DelayedUpdate, has_the_losses_of_a_run_without_up_to_the_step_after_its_warm_up) {
  AloneRank ordinary(sgd(std::nullopt)), delayed(sgd(3));
  for (int64_t step = 1; step <= 6; ++step) {
    const double loss = ordinary.rank.step(step).loss, late = delayed.rank.step(step).loss;
    EXPECT_EQ(loss == late, step <= 4) << step;
  }
}

TEST(DelayedUpdate, a_skipped_step_leaves_nothing_pending_and_applies_what_was) {
  for (const bool guarded : {false, true}) {
    TrainingCase each = sgd(0, guarded).in(DType::f16);
    each.scaler = LossScaler({.initial_power = 10, .hysteresis = 1});
    AloneRank run(each), same(each);
    EXPECT_FALSE(run.rank.step(1).skipped);
    same.rank.step(1);
    same.rank.model.finish_pending_update();
    LossScaler::State overflowing = run.rank.engine.scaler().state();
    overflowing.scale = 0x1p40;
    run.rank.engine.scaler().restore(overflowing);
    EXPECT_TRUE(run.rank.step(2).skipped);
    EXPECT_FALSE(run.rank.model.optimizer().pending());
    EXPECT_EQ(run.rank.model.optimizer().updates(), 1);
    expect_same_bits(run.rank.weights(), same.rank.weights());
  }
}

/// A run that learns, on these layouts and with these offload tiers, whose updates are put off after the first two.
class DelayedRuns : public testing::Test {
 protected:
  static TrainingCase on(const MeshLayout& layout, const OffloadOptions& offload = {}, int64_t steps = 5) {
    TrainingCase each = TrainingCase{.mesh = layout, .steps = {0, steps}}.in(DType::bf16);
    each.settings.offload_optimizer = offload;
    each.settings.offload_optimizer.delay_after = 2;
    return each;
  }
  OffloadOptions files(int64_t sub_group = 1000) const {
    return {.tier = {Pool::file, folder_.path().string(), {.backend = AioBackend::threads}},
            .sub_group = sub_group,
            .reads_ahead = true,
            .buffers = 8};
  }
  test::TempFolder folder_;
};

/// With several micro-batches, stages without and with gradient sharding add in other orders.
TEST_F(DelayedRuns, have_the_same_bits_at_every_stage_and_with_every_tier) {
  for (const int of : {1, 2, 4})
    for (const int first : {0, 2}) {
      if (of == 1 && first > 0) continue;
      if (of == 4 && first == 0 && !test::runs_everything()) continue;
      const TrainingResult plain = on(sharded(of, first)).run();
      TrainingCase ordinary = on(sharded(of, first));
      ordinary.settings.offload_optimizer.delay_after = {};
      const TrainingResult undelayed = ordinary.run();
      EXPECT_EQ(std::vector(plain.losses.begin(), plain.losses.begin() + 3),
                std::vector(undelayed.losses.begin(), undelayed.losses.begin() + 3));
      EXPECT_NE(plain.losses, undelayed.losses);
      expect_same_bits(on(sharded(of, first), files()).run(), plain);
      expect_same_bits(on(sharded(of, first + 1), files()).run(), plain);
      expect_same_bits(on(sharded(of, first + 1)).run(), plain);
    }
}

TEST_F(DelayedRuns, have_the_same_bits_with_pipeline_stages_and_shared_matrices) {
  for (const MeshLayout& layout : {MeshLayout{.sizes = {.shard = 2, .pipeline = 2}, .stage = 1},
                                   MeshLayout{.sizes = {.shard = 2, .tensor = 2}, .stage = 3}}) {
    expect_same_bits(on(layout, files()).run(), on(layout).run());
  }
}

TEST_F(DelayedRuns, resume_as_if_they_had_never_stopped_with_another_stage_and_tier) {
  const TrainingResult whole = on(sharded(2, 2), {}, 6).run();
  for (const int64_t stop : {2, 4}) {  // nothing is pending, and something is
    const test::TempFolder saved;
    TrainingCase first = on(sharded(2, 2), files(), stop), second = on(sharded(2, 2), {}, 6),
                 elsewhere = on(sharded(2, 3), files(333), 6);
    first.saved = second.resumed = elsewhere.resumed = saved.path().string();
    second.steps.begin = elsewhere.steps.begin = stop;
    first.run();
    EXPECT_EQ(read_checkpoint_info(last_checkpoint(saved.path())).pending.has_value(), stop == 4);
    expect_same_bits(second.run(), whole, static_cast<size_t>(stop));
    expect_same_bits(elsewhere.run(), whole, static_cast<size_t>(stop));
  }
}

/// The one that is pending is applied when the run begins: the two updates in all are those of a run that drained.
TEST_F(DelayedRuns, resume_without_the_delay_after_exactly_one_update) {
  const test::TempFolder saved;
  TrainingCase first = on(sharded(2, 1), {}, 4), second = first;
  first.saved = second.resumed = saved.path().string();
  second.steps.begin = 4, second.settings.offload_optimizer.delay_after = {};
  const TrainingResult drained = first.run();
  expect_same_bits(second.run().weights, drained.weights);
}

/// Without clipping nothing stands between a gradient and its update.
TrainingCase unclipped(const MeshLayout& layout, const OffloadOptions& offload, const char* model = "grouped_heads") {
  TrainingCase each = test::learning(test::small_model(model), layout);
  each.settings.optimizer.weight_decay = 0, each.settings.offload_optimizer = offload;
  each.steps.end = 3, each.rows.of_step = 8, each.accumulation = 2;
  each.lr = 1e-2, each.clipping = 0;
  return each.in(DType::bf16);
}

TEST_F(DelayedRuns, updates_overlapped_with_the_backward_pass_have_the_bits_of_updates_after_it) {
  for (const int of : {1, 2, 4})
    for (int stage = 0; stage <= (of == 1 ? 0 : 3); ++stage)
      for (const bool guarded : {false, true}) {
        if (!test::samples(of / 2 + stage + guarded, 2)) continue;
        const bool tied = (stage + guarded) % 2 == 0;
        OffloadOptions offload = guarded ? OffloadOptions{.tier = {Pool::host}, .sub_group = 1000} : files();
        TrainingCase late = unclipped(sharded(of, stage), offload, tied ? "qk_norms" : "grouped_heads");
        late.guarded = guarded;
        TrainingCase early = late;
        early.settings.offload_optimizer.early = true;
        expect_same_bits(early.run(), late.run());
        const auto moved_up = [](const TrainingCase& each) {
          return each.on_rank(0, [](TrainingRank& rank) {
            rank.step(0), rank.model.settle();
            return rank.model.optimizer().traffic().up;
          });
        };
        EXPECT_EQ(moved_up(early), moved_up(late));
      }
}

/// All is infinite from the first loss on: no segment is updated, and the message says so.
TEST_F(DelayedRuns, nothing_is_updated_early_with_gradients_that_are_not_finite) {
  OffloadOptions offload = files();
  offload.early = true;
  unclipped({}, offload).on_ranks([](TrainingRank& rank) {
    rank.model.with_parameters(0, [&](const Parameter&, const Tensor& whole) {
      rank.context.run(Fill{.x = whole, .value = std::numeric_limits<double>::infinity()});
    });
    const std::string message = test::message_of<Error>([&] { rank.step(0); });
    EXPECT_THAT(message, testing::HasSubstr("step 1"));
    EXPECT_THAT(message, testing::HasSubstr("the weights are those of the step before"));
  });
}

/// What sees the calls of files, and is late with each.
struct SlowFile {
  std::atomic<int> calls = 0;
  SwapFault fault() {
    return [this](const SwapCall& call) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      ++calls;
      return call.result;
    };
  }
  /// Waits for so many more.
  void wait_for(int more, int before) const {
    for (int i = 0; i < 30'000 && calls < before + more; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
};

/// The third step computes until all is there that can be: then nothing of the file is waited for.
TEST_F(DelayedRuns, what_moves_beside_a_computation_that_is_long_enough_is_hidden) {
  enum class Way { ordinary, early, delayed };
  for (const Way way : {Way::ordinary, Way::early, Way::delayed}) {
    SlowFile file;
    OffloadOptions offload = files(20'000);
    const test::ScopedSwapFault scope(file.fault());
    offload.early = way == Way::early;
    if (way == Way::delayed) offload.delay_after = 0;
    unclipped({}, offload).on_ranks([&](TrainingRank& run) {
      run.step(0), run.weights(), run.step(1), run.weights();
      run.model.finish_pending_update();
      const int begun = file.calls;
      run.step(2), run.weights();
      run.model.finish_pending_update();
      const int each = file.calls - begun;  // of an update
      if (way == Way::delayed) run.step(2), run.weights();
      const int before = file.calls;
      const int awaited = way == Way::ordinary ? 0 : each;
      run.engine.set_wants_stop([&] {
        file.wait_for(awaited, before);
        return false;
      });
      const StateTimes started = run.model.optimizer().times();
      run.step(2), run.weights();
      const StateTimes times = run.model.optimizer().times() - started;
      EXPECT_GT(times.on_way, 0.002);
      const double hidden = 1 - times.waited / times.on_way;
      if (way == Way::ordinary) {
        EXPECT_LT(hidden, 0.3);
      } else {
        EXPECT_GT(hidden, 0.8) << "early " << (way == Way::early);
      }
    });
  }
}

}  // namespace
}  // namespace nought::delayed_update_test
