// One step: what is added up, scaled, clipped, skipped and refused. Layouts are compared in layouts_test.
#include "nought/engine/engine.h"

#include <cmath>
#include <limits>

#include "support/message_of.h"
#include "support/tiny_llama.h"
#include "support/training_case.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::engine_test {
namespace {

using test::expect_same_bits;
using test::sharded;
using test::TrainingCase;
using test::TrainingRank;
using testing::HasSubstr;

constexpr int64_t kLength = 8;

/// A row for each rank in a step.
TrainingCase tiny(const test::MeshLayout& mesh = {}) {
  TrainingCase each = test::learning(test::tiny_llama(), mesh);
  each.rows.of_step = mesh.ranks();
  return each;
}

/// One rank with a tiny model and an engine around it.
struct Alone : test::AloneRank {
  explicit Alone(const TrainingCase& of = tiny()) : AloneRank(of), engine(rank.engine) {}

  Batch batch(int64_t step) const { return rank.batches(step).front(); }
  /// The batch with weights: it counts as much as before if every one is 1.
  Batch weighted(int64_t step, const std::vector<float>& weights) const {
    Batch each = batch(step);
    each.weights = Tensor::of<float>(*rank.context.memory, {1, kLength}, weights);
    return each;
  }
  StepResult step(const Batch& batch, double clipping = 1) {
    return engine.step(std::span(&batch, 1), CrossEntropyObjective().weight(batch), 1e-2, clipping);
  }
  /// A parameter that makes every loss and gradient NaN.
  void poison() {
    rank.model.with_parameters(0, [](const Parameter&, const Tensor& whole) {
      for (float& value : whole.span<float>()) value = std::numeric_limits<float>::quiet_NaN();
    });
  }

  Engine& engine;
};

void expect_same(const StepResult& a, const StepResult& b) {
  EXPECT_EQ(a.loss, b.loss);
  EXPECT_EQ(a.grad_norm, b.grad_norm);
}

TEST(Engine, weights_of_one_train_as_no_weights_to_the_bit) {
  Alone plain, with_ones;
  for (int64_t step = 0; step < 3; ++step)
    expect_same(plain.step(plain.batch(step)),
                with_ones.step(with_ones.weighted(step, std::vector<float>(kLength, 1))));
  expect_same_bits(plain.rank.weights(), with_ones.rank.weights());
}

TEST(Engine, targets_of_weight_zero_train_as_masked_ones_to_the_bit) {
  Alone masked, with_zeros;
  for (int64_t step = 0; step < 3; ++step) {
    const Batch batch = masked.batch(step);
    std::vector<float> weights(kLength, 1);
    for (const int i : {0, 3, 4}) {
      batch.targets.data<int32_t>()[i] = kIgnoredTarget;
      weights[static_cast<size_t>(i)] = 0;
    }
    const Batch same = with_zeros.weighted(step, weights);
    EXPECT_EQ(CrossEntropyObjective().weight(same), kLength - 3);
    expect_same(masked.step(batch), with_zeros.step(same));
  }
  expect_same_bits(masked.rank.weights(), with_zeros.rank.weights());
}

TEST(Engine, the_mean_is_taken_by_weight) {
  // Twice as much of everything is the same mean; a power of two moves no bit.
  Alone plain, doubled;
  expect_same(plain.step(plain.batch(1), 0), doubled.step(doubled.weighted(1, std::vector<float>(kLength, 2)), 0));
  expect_same_bits(plain.rank.weights(), doubled.rank.weights());
}

TEST(Engine, the_norm_adds_the_units_in_order_each_summed_over_the_ranks_first) {
  for (const int ranks : {1, 2, 3})
    tiny(sharded(ranks, 2)).on_ranks([&](TrainingRank& rank) {
      const double norm = rank.engine.accumulate(rank.batches(0), rank.targets(0)).grad_norm;
      const Tensor mine = rank.model.finish_gradients();
      const int64_t units = mine.numel();
      EXPECT_EQ(static_cast<size_t>(units), rank.decoder.units().size());
      const Tensor all = rank.context.empty({ranks * units}, DType::f64);
      rank.world.all_gather(mine, all).wait();
      double sum = 0;
      for (int64_t unit = 0; unit < units; ++unit) {
        double of_unit = all.data<double>()[unit];
        for (int other = 1; other < ranks; ++other) of_unit += all.data<double>()[other * units + unit];
        sum += of_unit;
      }
      EXPECT_EQ(norm, std::sqrt(sum));
    });
}

TEST(Engine, a_rank_that_wants_to_stop_is_heard_by_all_in_the_same_step_and_costs_no_collective) {
  for (const int asked : {-1, 0, 2})
    tiny(sharded(3, 2)).on_ranks([&](TrainingRank& rank) {
      const auto collectives = [&] {
        const int64_t before = rank.world.traffic()[Collective::all_reduce].calls;
        EXPECT_EQ(rank.step(0).stop, false);
        return rank.world.traffic()[Collective::all_reduce].calls - before;
      };
      EXPECT_EQ(collectives(), 1) << "that of the loss and the norm";
      int questions = 0;
      rank.engine.set_wants_stop([&] { return ++questions == 2 && rank.world.rank() == asked; });
      EXPECT_EQ(collectives(), 1);
      EXPECT_EQ(rank.step(0).stop, asked >= 0) << "rank " << rank.world.rank();
      EXPECT_EQ(questions, 2) << "once in a step";
    });
}

TEST(Engine, the_loss_is_the_mean_over_the_targets_of_all_micro_batches) {
  Alone alone;
  const std::vector<Batch> both{alone.batch(1), alone.batch(2)};
  const double first = alone.engine.evaluate(std::span(&both[0], 1), kLength);
  const double second = alone.engine.evaluate(std::span(&both[1], 1), kLength);
  EXPECT_NEAR(alone.engine.evaluate(both, 2 * kLength), (first + second) / 2, 1e-12);

  const StepResult step = alone.engine.accumulate(both, 2 * kLength);
  EXPECT_NEAR(step.loss, (first + second) / 2, 1e-6);
  EXPECT_FALSE(step.skipped);
  EXPECT_GT(step.grad_norm, 0);
  EXPECT_GT(step.memory.forward, step.memory.backward) << "the backward pass uses activations up";
}

TEST(Engine, gradient_factor_and_loss_scale_are_divided_out_again) {
  TrainingCase with_factor = tiny(), with_scale = tiny();
  with_factor.gradient_factor = 4;
  with_scale.scaler = LossScaler(LossScaleOptions{.initial_power = 6});
  Alone plain, factor(with_factor), scaled(with_scale);
  const StepResult expected = plain.step(plain.batch(1));
  for (Alone* other : {&factor, &scaled}) {
    expect_same(other->step(other->batch(1)), expected);
    expect_same_bits(other->rank.weights(), plain.rank.weights());  // powers of two move no bit
  }
  EXPECT_EQ(expected.loss_scale, 1);
}

TEST(Engine, evaluation_changes_nothing) {
  Alone alone;
  const test::WholeTensors before = alone.rank.weights();
  alone.rank.evaluate(1);
  expect_same_bits(alone.rank.weights(), before);
  EXPECT_EQ(alone.rank.model.optimizer().updates(), 0);
}

TEST(Engine, clipping_bounds_the_norm_and_zero_switches_it_off) {
  // Plain SGD moves by lr times the gradient: the length of the step shows what the gradient was.
  const auto moved = [](double max_norm) {
    TrainingCase descends = tiny();
    descends.settings.optimizer = {.method = SgdOptions{}};
    descends.lr = 1, descends.clipping = max_norm;
    return descends.on_rank(0, [](TrainingRank& rank) {
      const test::WholeTensors before = rank.weights();
      const double norm = rank.step(1).grad_norm;
      double squares = 0;
      for (const auto& [name, after] : rank.weights())
        for (size_t i = 0; i < after.size(); ++i) squares += std::pow(double{after[i]} - before.at(name)[i], 2);
      return std::pair(std::sqrt(squares), norm);
    });
  };
  const auto [free, norm] = moved(0);
  EXPECT_NEAR(free, norm, 1e-4 * norm);
  const auto [clipped, same_norm] = moved(norm / 4);
  EXPECT_EQ(same_norm, norm) << "the norm is told as it was before";
  EXPECT_NEAR(clipped, norm / 4, 1e-4 * norm);
  EXPECT_NEAR(moved(norm * 4).first, norm, 1e-4 * norm) << "a smaller gradient is left alone";
}

TEST(Engine, what_is_not_finite_stops_the_run_or_is_skipped_as_it_was_told) {
  TrainingCase skipping = tiny();
  skipping.on_nonfinite = OnNonfinite::skip;
  Alone stops, skips(skipping);
  const Batch batch = stops.batch(1);
  stops.poison(), skips.poison();
  EXPECT_THAT(test::message_of<Error>([&] { stops.step(batch); }), HasSubstr("step 1"));
  EXPECT_THROW(stops.engine.accumulate(std::span(&batch, 1), kLength), Error);
  const StepResult skipped = skips.step(batch);
  EXPECT_TRUE(skipped.skipped);
  EXPECT_FALSE(skipped.finite());
  EXPECT_THAT(skipped.nonfinite, HasSubstr("embed_tokens"));
  EXPECT_EQ(skips.engine.skipped(), 1);
  EXPECT_EQ(skips.rank.model.optimizer().updates(), 0);
}

TEST(Engine, an_overflow_lowers_the_scale_and_is_no_error) {
  TrainingCase half = tiny().in(DType::f16);
  half.scaler = LossScaler(LossScaleOptions{.initial_power = 30, .hysteresis = 1});
  Alone alone(half);
  const test::WholeTensors before = alone.rank.weights();
  const StepResult result = alone.rank.step(1);
  EXPECT_TRUE(result.skipped);
  EXPECT_EQ(result.loss_scale, 0x1p30);
  EXPECT_EQ(result.nonfinite, "") << "the scale is to blame";
  EXPECT_EQ(alone.engine.scaler().scale(), 0x1p29);
  expect_same_bits(alone.rank.weights(), before);
  alone.engine.set_skipped(7);
  EXPECT_EQ(alone.engine.skipped(), 7);
}

TEST(Engine, a_step_needs_a_batch_and_a_target) {
  Alone alone;
  const Batch batch = alone.batch(1);
  EXPECT_THROW(alone.engine.accumulate({}, 1), Error);
  EXPECT_THROW(alone.engine.accumulate(std::span(&batch, 1), 0), Error);
}

}  // namespace
}  // namespace nought::engine_test
