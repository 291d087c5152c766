// One step: what is added up, scaled, clipped, skipped and refused. Layouts are compared in layouts_test.
#include "nought/train/engine.h"

#include <cmath>
#include <limits>

#include "support/message_of.h"
#include "support/tiny_llama.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/comm/thread.h"
#include "nought/models/decoder.h"

namespace nought::engine_test {
namespace {

using testing::HasSubstr;

constexpr int64_t kLength = 8;

/// One rank with a tiny model and an engine around it.
struct Fixture {
  explicit Fixture(LossScaler scaler = {}, double gradient_factor = 1, OnNonfinite on_nonfinite = OnNonfinite::stop,
                   DType dtype = DType::f32)
      : model(context, *self, decoder, {.dtype = dtype, .gradient_dtype = dtype}),
        engine(model, scaler, gradient_factor, on_nonfinite) {
    model.load(InitialState(3));
  }
  Batch batch(int32_t seed) const {
    Batch result{context.empty({1, kLength}, DType::i32), context.empty({1, kLength}, DType::i32)};
    for (int32_t i = 0; i < kLength; ++i) {
      result.input_ids.data<int32_t>()[i] = (seed * 7 + i * 3) % 256;
      result.targets.data<int32_t>()[i] = (seed * 7 + i * 3 + 3) % 256;
    }
    return result;
  }
  std::vector<float> weights() {
    std::vector<float> all;
    for (size_t unit = 0; unit < model.model().units().size(); ++unit)
      model.with_parameters(unit, [&](const Parameter&, const Tensor& whole) {
        for (const float value : whole.to_vector<float>()) all.push_back(value);
      });
    return all;
  }
  /// A parameter that makes every loss and gradient NaN.
  void poison() {
    model.with_parameters(0, [](const Parameter&, const Tensor& whole) {
      for (float& value : whole.span<float>()) value = std::numeric_limits<float>::quiet_NaN();
    });
  }

  Context context = Context::cpu();
  std::unique_ptr<Communicator> self = make_self_communicator();
  Decoder decoder{test::tiny_llama()};
  ShardedModel model;
  Engine engine;
};

/// The batch with weights that count as much as before if every one is 1.
Batch weighted(const Context& context, Batch batch, const std::vector<float>& weights) {
  batch.weights = Tensor::of<float>(*context.memory, {1, kLength}, weights);
  return batch;
}

TEST(Engine, weights_of_one_train_as_no_weights_to_the_bit) {
  Fixture plain, with_ones;
  for (int32_t step = 0; step < 3; ++step) {
    const Batch batch = plain.batch(step);
    const Batch same = weighted(with_ones.context, with_ones.batch(step), std::vector<float>(kLength, 1));
    const StepResult a = plain.engine.step(std::span(&batch, 1), kLength, 1e-2, 1);
    const StepResult b = with_ones.engine.step(std::span(&same, 1), kLength, 1e-2, 1);
    EXPECT_EQ(a.loss, b.loss);
    EXPECT_EQ(a.grad_norm, b.grad_norm);
  }
  EXPECT_EQ(plain.weights(), with_ones.weights());
}

TEST(Engine, targets_of_weight_zero_train_as_masked_ones_to_the_bit) {
  Fixture masked, with_zeros;
  for (int32_t step = 0; step < 3; ++step) {
    Batch batch = masked.batch(step);
    std::vector<float> weights(kLength, 1);
    for (const int i : {0, 3, 4}) {
      batch.targets.data<int32_t>()[i] = kIgnoredTarget;
      weights[static_cast<size_t>(i)] = 0;
    }
    const Batch same = weighted(with_zeros.context, with_zeros.batch(step), weights);
    const double total = CrossEntropyObjective().weight(same);
    EXPECT_EQ(total, kLength - 3);
    const StepResult a = masked.engine.step(std::span(&batch, 1), kLength - 3, 1e-2, 1);
    const StepResult b = with_zeros.engine.step(std::span(&same, 1), total, 1e-2, 1);
    EXPECT_EQ(a.loss, b.loss);
    EXPECT_EQ(a.grad_norm, b.grad_norm);
  }
  EXPECT_EQ(masked.weights(), with_zeros.weights());
}

TEST(Engine, the_mean_is_taken_by_weight) {
  // Twice as much of everything is the same mean; a power of two moves no bit.
  Fixture plain, doubled;
  const Batch batch = plain.batch(1);
  const Batch same = weighted(doubled.context, doubled.batch(1), std::vector<float>(kLength, 2));
  const StepResult a = plain.engine.step(std::span(&batch, 1), kLength, 1e-2, 0);
  const StepResult b = doubled.engine.step(std::span(&same, 1), CrossEntropyObjective().weight(same), 1e-2, 0);
  EXPECT_EQ(a.loss, b.loss);
  EXPECT_EQ(a.grad_norm, b.grad_norm);
  EXPECT_EQ(plain.weights(), doubled.weights());
}

TEST(Engine, the_norm_adds_the_units_in_order_each_summed_over_the_ranks_first) {
  for (const int ranks : {1, 2, 3})
    run_ranks(ranks, [&](Communicator& world, const Context& context) {
      Decoder decoder(test::tiny_llama());
      ShardedModel model(context, world, decoder, {.policy = Policy::stage(2)});
      model.load(InitialState(3));
      Engine engine(model);
      Batch batch{context.empty({1, kLength}, DType::i32), context.empty({1, kLength}, DType::i32)};
      for (int32_t i = 0; i < kLength; ++i) {
        batch.input_ids.data<int32_t>()[i] = (world.rank() * 31 + i * 3) % 256;
        batch.targets.data<int32_t>()[i] = (world.rank() * 31 + i * 7) % 256;
      }
      const double norm = engine.accumulate(std::span(&batch, 1), kLength * ranks).grad_norm;
      const Tensor mine = model.finish_gradients();
      const int64_t units = mine.numel();
      EXPECT_EQ(static_cast<size_t>(units), decoder.units().size());
      const Tensor all = context.empty({ranks * units}, DType::f64);
      world.all_gather(mine, all).wait();
      double sum = 0;
      for (int64_t unit = 0; unit < units; ++unit) {
        double of_unit = all.data<double>()[unit];
        for (int rank = 1; rank < ranks; ++rank) of_unit += all.data<double>()[rank * units + unit];
        sum += of_unit;
      }
      EXPECT_EQ(norm, std::sqrt(sum));
    });
}

TEST(Engine, a_rank_that_wants_to_stop_is_heard_by_all_in_the_same_step_and_costs_no_collective) {
  for (const int asked : {-1, 0, 2})
    run_ranks(3, [&](Communicator& world, const Context& context) {
      Decoder decoder(test::tiny_llama());
      ShardedModel model(context, world, decoder, {.policy = Policy::stage(2)});
      model.load(InitialState(3));
      Engine engine(model);
      Batch batch{context.empty({1, kLength}, DType::i32), context.empty({1, kLength}, DType::i32)};
      context.zero(batch.input_ids), context.zero(batch.targets);
      const auto collectives = [&] {
        const int64_t before = world.traffic()[Collective::all_reduce].calls;
        EXPECT_EQ(engine.step(std::span(&batch, 1), kLength * 3, 1e-3, 1).stop, false);
        return world.traffic()[Collective::all_reduce].calls - before;
      };
      EXPECT_EQ(collectives(), 1) << "that of the loss and the norm";
      int questions = 0;
      engine.set_wants_stop([&] { return ++questions == 2 && world.rank() == asked; });
      EXPECT_EQ(collectives(), 1);
      EXPECT_EQ(engine.step(std::span(&batch, 1), kLength * 3, 1e-3, 1).stop, asked >= 0) << "rank " << world.rank();
      EXPECT_EQ(questions, 2) << "once in a step";
    });
}

TEST(Engine, the_loss_is_the_mean_over_the_targets_of_all_micro_batches) {
  Fixture f;
  const std::vector<Batch> both{f.batch(1), f.batch(2)};
  const double first = f.engine.evaluate(std::span(&both[0], 1), kLength);
  const double second = f.engine.evaluate(std::span(&both[1], 1), kLength);
  EXPECT_NEAR(f.engine.evaluate(both, 2 * kLength), (first + second) / 2, 1e-12);
  const StepResult step = f.engine.accumulate(both, 2 * kLength);
  EXPECT_NEAR(step.loss, (first + second) / 2, 1e-6);
  EXPECT_FALSE(step.skipped);
  EXPECT_GT(step.grad_norm, 0);
  EXPECT_GT(step.memory.forward, step.memory.backward) << "the backward pass uses activations up";
}

TEST(Engine, gradient_factor_and_loss_scale_are_divided_out_again) {
  Fixture plain, factor({}, 4), scaled(LossScaler(LossScaleOptions{.initial_power = 6}));
  const Batch batch = plain.batch(1);
  const StepResult expected = plain.engine.step(std::span(&batch, 1), kLength, 1e-2, 1.0);
  for (Fixture* other : {&factor, &scaled}) {
    const StepResult result = other->engine.step(std::span(&batch, 1), kLength, 1e-2, 1.0);
    EXPECT_EQ(result.loss, expected.loss);
    EXPECT_EQ(result.grad_norm, expected.grad_norm);
    EXPECT_EQ(other->weights(), plain.weights()) << "powers of two move no bit";
  }
  EXPECT_EQ(expected.loss_scale, 1);
}

TEST(Engine, evaluation_changes_nothing) {
  Fixture f;
  const std::vector<float> before = f.weights();
  const Batch batch = f.batch(1);
  f.engine.evaluate(std::span(&batch, 1), kLength);
  EXPECT_EQ(f.weights(), before);
  EXPECT_EQ(f.model.optimizer().updates(), 0);
}

TEST(Engine, clipping_bounds_the_norm_and_zero_switches_it_off) {
  // Plain SGD moves by lr times the gradient: the length of the step shows what the gradient was.
  const auto moved = [](double max_norm) {
    const Context context = Context::cpu();
    const auto self = make_self_communicator();
    Decoder decoder(test::tiny_llama());
    ShardedModel model(context, *self, decoder, {.optimizer = {.method = SgdOptions{}}});
    model.load(InitialState(3));
    Engine engine(model);
    Fixture source;
    const Batch batch = source.batch(1);
    const StepResult result = engine.step(std::span(&batch, 1), kLength, 1.0, max_norm);
    const std::vector<float> before = source.weights();
    std::vector<float> after;
    for (size_t unit = 0; unit < decoder.units().size(); ++unit)
      model.with_parameters(unit, [&](const Parameter&, const Tensor& whole) {
        for (const float value : whole.to_vector<float>()) after.push_back(value);
      });
    double squares = 0;
    for (size_t i = 0; i < before.size(); ++i) squares += std::pow(double{after[i]} - before[i], 2);
    return std::pair(std::sqrt(squares), result.grad_norm);
  };
  const auto [free, norm] = moved(0);
  EXPECT_NEAR(free, norm, 1e-4 * norm);
  const auto [clipped, same_norm] = moved(norm / 4);
  EXPECT_EQ(same_norm, norm) << "the norm is told as it was before";
  EXPECT_NEAR(clipped, norm / 4, 1e-4 * norm);
  EXPECT_NEAR(moved(norm * 4).first, norm, 1e-4 * norm) << "a smaller gradient is left alone";
}

TEST(Engine, what_is_not_finite_stops_the_run_or_is_skipped_as_it_was_told) {
  Fixture stops, skips({}, 1, OnNonfinite::skip);
  const Batch batch = stops.batch(1);
  stops.poison(), skips.poison();
  EXPECT_THAT(test::message_of<Error>([&] { stops.engine.step(std::span(&batch, 1), kLength, 1e-2, 1); }),
              HasSubstr("step 1"));
  EXPECT_THROW(stops.engine.accumulate(std::span(&batch, 1), kLength), Error);
  const StepResult skipped = skips.engine.step(std::span(&batch, 1), kLength, 1e-2, 1);
  EXPECT_TRUE(skipped.skipped);
  EXPECT_FALSE(skipped.finite());
  EXPECT_THAT(skipped.nonfinite, HasSubstr("embed_tokens"));
  EXPECT_EQ(skips.engine.skipped(), 1);
  EXPECT_EQ(skips.model.optimizer().updates(), 0);
}

TEST(Engine, an_overflow_lowers_the_scale_and_is_no_error) {
  Fixture f(LossScaler(LossScaleOptions{.initial_power = 30, .hysteresis = 1}), 1, OnNonfinite::stop, DType::f16);
  const std::vector<float> before = f.weights();
  const Batch batch = f.batch(1);
  const StepResult result = f.engine.step(std::span(&batch, 1), kLength, 1e-2, 1);
  EXPECT_TRUE(result.skipped);
  EXPECT_EQ(result.loss_scale, 0x1p30);
  EXPECT_EQ(result.nonfinite, "") << "the scale is to blame";
  EXPECT_EQ(f.engine.scaler().scale(), 0x1p29);
  EXPECT_EQ(f.weights(), before);
  f.engine.set_skipped(7);
  EXPECT_EQ(f.engine.skipped(), 7);
}

TEST(Engine, a_step_needs_a_batch_and_a_target) {
  Fixture f;
  const Batch batch = f.batch(1);
  EXPECT_THROW(f.engine.accumulate({}, 1), Error);
  EXPECT_THROW(f.engine.accumulate(std::span(&batch, 1), 0), Error);
}

}  // namespace
}  // namespace nought::engine_test
