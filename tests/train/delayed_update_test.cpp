// An update that is put off by one step: theta(t + 1) = theta(t) - A(g(theta(t - 1))), on every layout with the same
// bits, wherever states are, and in what resumes.
#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <thread>

#include "support/guarded_context.h"
#include "support/mesh_runs.h"
#include "support/message_of.h"
#include "support/temp_folder.h"
#include "support/tiny_llama.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::delayed_update_test {
namespace {

using test::Course;
using test::CourseOptions;
using test::MeshLayout;

constexpr int64_t kLength = 8;

/// One rank with a tiny model and plain SGD.
struct SgdRun {
  SgdRun(const Context& of, std::optional<int64_t> delay_after, LossScaler scaler = {}, DType dtype = DType::f32)
      : context(of),
        model(context, *self, decoder,
              {.dtype = dtype,
               .gradient_dtype = dtype,
               .optimizer = {.method = SgdOptions{}},
               .offload_optimizer = {.home = Pool::host, .delay_after = delay_after}}),
        engine(model, scaler) {
    model.load(InitialState(3));
  }
  Batch batch(int32_t seed) const {
    std::vector<int32_t> ids, targets;
    for (int32_t i = 0; i < kLength; ++i)
      ids.push_back((seed * 7 + i * 3) % 256), targets.push_back((seed * 5 + i * 3 + 3) % 256);
    return {context.upload<int32_t>({1, kLength}, ids), context.upload<int32_t>({1, kLength}, targets)};
  }
  StepResult step(int32_t seed, double lr, double max_norm = 0) {
    const Batch rows = batch(seed);
    return engine.step(std::span(&rows, 1), kLength, lr, max_norm);
  }
  std::vector<std::vector<float>> weights() {
    std::vector<std::vector<float>> all;
    for (size_t unit = 0; unit < decoder.units().size(); ++unit)
      model.with_parameters(
          unit, [&](const Parameter&, const Tensor& whole) { all.push_back(context.to_host<float>(whole)); });
    return all;
  }
  /// Of the loss of a batch at the weights that are seen now, before clipping.
  std::vector<std::vector<float>> gradients(int32_t seed) {
    const Batch rows = batch(seed);
    engine.accumulate(std::span(&rows, 1), kLength);
    std::vector<std::vector<float>> all;
    for (size_t unit = 0; unit < decoder.units().size(); ++unit)
      for (const Tensor& gradient : model.gather_gradients(unit)) all.push_back(context.to_host<float>(gradient));
    model.discard_gradients();
    return all;
  }

  Context context;
  std::unique_ptr<Communicator> self = make_self_communicator();
  Decoder decoder{test::tiny_llama()};
  ShardedModel model;
  Engine engine;
};

Context context_on(bool guarded) { return guarded ? test::guarded_context() : Context::cpu(); }

TEST(DelayedUpdate, follows_its_formula_with_clipping) {
  for (const bool guarded : {false, true}) {
    SgdRun run(context_on(guarded), 1);
    std::vector<std::vector<float>> theta = run.weights(), before = theta;
    double scale_before = 0;
    std::vector<std::vector<float>> g_before;
    for (int32_t step = 1; step <= 5; ++step) {
      const double lr = 0.1 * step;  // each update takes the rate of its own gradients
      const auto g = run.gradients(step);
      const double norm = run.step(step, lr, 0.5).grad_norm;
      const double scale = lr * std::min(1.0, 0.5 / (norm + 1e-6));
      if (step == 3) {
        EXPECT_LT(scale, lr) << "clipping is active";
      }
      // The first update is an ordinary one; the second step applies none.
      const auto& applied = step == 1 ? g : g_before;
      const double factor = step == 1 ? scale : step == 2 ? 0 : scale_before;
      const auto seen = run.weights();
      for (size_t p = 0; p < theta.size(); ++p)
        for (size_t i = 0; i < theta[p].size(); ++i) {
          const double want = theta[p][i] - (factor == 0 ? 0.0 : factor * applied[p][i]);
          ASSERT_NEAR(seen[p][i], want, 1e-6 * std::max(1.0, std::abs(want))) << "step " << step;
        }
      if (step == 2) {
        EXPECT_EQ(seen, theta);
      }
      theta = seen, g_before = g, scale_before = scale;
    }
    EXPECT_TRUE(run.model.optimizer().pending());
    run.model.finish_pending_update();
    EXPECT_FALSE(run.model.optimizer().pending());
    const auto last = run.weights();
    EXPECT_NE(last, theta);
    run.model.finish_pending_update();
    EXPECT_EQ(run.weights(), last) << "exactly one is applied";
    EXPECT_NE(last, before);
  }
}

TEST(DelayedUpdate, has_the_losses_of_a_run_without_up_to_the_step_after_its_warm_up) {
  SgdRun ordinary(Context::cpu(), std::nullopt), delayed(Context::cpu(), 3);
  for (int32_t step = 1; step <= 6; ++step) {
    const double loss = ordinary.step(step, 0.1).loss, late = delayed.step(step, 0.1).loss;
    EXPECT_EQ(loss == late, step <= 4) << step;
  }
}

TEST(DelayedUpdate, a_skipped_step_leaves_nothing_pending_and_applies_what_was) {
  for (const bool guarded : {false, true}) {
    const LossScaler scaler(LossScaleOptions{.initial_power = 10, .hysteresis = 1});
    SgdRun run(context_on(guarded), 0, scaler, DType::f16), same(context_on(guarded), 0, scaler, DType::f16);
    EXPECT_FALSE(run.step(1, 0.1).skipped);
    same.step(1, 0.1);
    same.model.finish_pending_update();
    LossScaler::State overflowing = run.engine.scaler().state();
    overflowing.scale = 0x1p40;
    run.engine.scaler().restore(overflowing);
    EXPECT_TRUE(run.step(2, 0.1).skipped);
    EXPECT_FALSE(run.model.optimizer().pending());
    EXPECT_EQ(run.model.optimizer().updates(), 1);
    EXPECT_EQ(run.weights(), same.weights());
  }
}

/// A run that learns, on these layouts and with these homes, whose updates are put off after the first two.
class DelayedRuns : public testing::Test {
 protected:
  CourseOptions options(const OffloadOptions& home) const {
    CourseOptions options;
    options.sharding.dtype = options.sharding.gradient_dtype = DType::bf16;
    options.sharding.offload_optimizer = home;
    options.sharding.offload_optimizer.delay_after = 2;
    return options;
  }
  OffloadOptions files(int64_t sub_group = 1000) const {
    return {.home = Pool::file,
            .folder = folder_.path().string(),
            .sub_group = sub_group,
            .reads_ahead = true,
            .buffers = 8,
            .aio = {.backend = AioBackend::threads}};
  }
  static MeshLayout ranks(int ranks, int stage) { return {.sizes = {.shard = ranks}, .stage = stage}; }

  const ModelConfig model_ = test::dense_mesh_model();
  test::TempFolder folder_;
};

void expect_same(const Course& course, const Course& expected, size_t first = 0) {
  EXPECT_EQ(course.losses,
            std::vector<double>(expected.losses.begin() + static_cast<std::ptrdiff_t>(first), expected.losses.end()));
  EXPECT_TRUE(course.weights == expected.weights);
}

/// With several micro-batches, stages without and with gradient sharding add in other orders.
TEST_F(DelayedRuns, have_the_same_bits_at_every_stage_and_with_every_home) {
  for (const int of : {1, 2, 4})
    for (const int first : {0, 2}) {
      if (of == 1 && first > 0) continue;
      const Course plain = train_on(ranks(of, first), model_, {0, 5}, options({}));
      CourseOptions ordinary = options({});
      ordinary.sharding.offload_optimizer.delay_after = {};
      const Course undelayed = train_on(ranks(of, first), model_, {0, 5}, ordinary);
      EXPECT_EQ(std::vector(plain.losses.begin(), plain.losses.begin() + 3),
                std::vector(undelayed.losses.begin(), undelayed.losses.begin() + 3));
      EXPECT_NE(plain.losses, undelayed.losses);
      for (const int stage : {first, first + 1})
        for (const OffloadOptions& home : {OffloadOptions{}, files()}) {
          SCOPED_TRACE(fmt::format("{} ranks, stage {}, {}", of, stage, name_of(home.home)));
          expect_same(train_on(ranks(of, stage), model_, {0, 5}, options(home)), plain);
        }
    }
}

TEST_F(DelayedRuns, have_the_same_bits_with_pipeline_stages_and_shared_matrices) {
  for (const MeshLayout& layout : {MeshLayout{.sizes = {.shard = 2, .pipeline = 2}, .stage = 1},
                                   MeshLayout{.sizes = {.shard = 2, .tensor = 2}, .stage = 3}}) {
    SCOPED_TRACE(layout.str());
    expect_same(train_on(layout, model_, {0, 5}, options(files())), train_on(layout, model_, {0, 5}, options({})));
  }
}

TEST_F(DelayedRuns, resume_as_if_they_had_never_stopped_with_another_stage_and_home) {
  const Course whole = train_on(ranks(2, 2), model_, {0, 6}, options({}));
  for (const int64_t stop : {2, 4}) {  // nothing is pending, and something is
    const test::TempFolder saved;
    CourseOptions first = options(files()), second = options({}), elsewhere = options(files(333));
    first.saved = second.resumed = elsewhere.resumed = saved.path().string();
    train_on(ranks(2, 2), model_, {0, stop}, first);
    EXPECT_EQ(read_checkpoint_info(last_checkpoint(saved.path())).pending.has_value(), stop == 4);
    expect_same(train_on(ranks(2, 2), model_, {stop, 6}, second), whole, static_cast<size_t>(stop));
    expect_same(train_on(ranks(2, 3), model_, {stop, 6}, elsewhere), whole, static_cast<size_t>(stop));
  }
}

/// The one that is pending is applied when the run begins: the two updates in all are those of a run that drained.
TEST_F(DelayedRuns, resume_without_the_delay_after_exactly_one_update) {
  const test::TempFolder saved;
  CourseOptions first = options({}), second = options({});
  first.saved = second.resumed = saved.path().string();
  second.sharding.offload_optimizer.delay_after = {};
  const Course drained = train_on(ranks(2, 1), model_, {0, 4}, first);
  EXPECT_EQ(train_on(ranks(2, 1), model_, {4, 4}, second).weights, drained.weights);
}

/// Without clipping nothing stands between a gradient and its update.
struct FreeRun {
  FreeRun(Communicator& ranks, const Context& of, int stage, const OffloadOptions& offload, bool tied)
      : context(of),
        decoder(tied ? test::dense_mesh_model() : test::tiny_llama()),
        model(context, ranks, decoder,
              {.policy = Policy::stage(stage),
               .dtype = DType::bf16,
               .gradient_dtype = DType::bf16,
               .offload_optimizer = offload}),
        engine(model) {
    model.load(InitialState(3));
  }
  std::vector<double> train(int rank, int ranks, int32_t steps = 3) {
    std::vector<double> losses;
    for (int32_t step = 0; step < steps; ++step) {
      std::vector<Batch> batches;
      for (int32_t i = 0; i < 2; ++i) {
        std::vector<int32_t> ids;
        for (int32_t k = 0; k <= kLength; ++k) ids.push_back((step * 41 + i * 17 + rank * 5 + k * 3) % 61);
        const std::span<const int32_t> all(ids);
        batches.push_back({context.upload<int32_t>({1, kLength}, all.first(kLength)),
                           context.upload<int32_t>({1, kLength}, all.subspan(1))});
      }
      losses.push_back(engine.step(batches, static_cast<double>(2 * kLength * ranks), 1e-2, 0).loss);
    }
    for (size_t unit = 0; unit < decoder.units().size(); ++unit)
      model.with_parameters(unit, [&](const Parameter&, const Tensor& whole) {
        for (const float value : context.to_host<float>(whole)) losses.push_back(value);
      });
    return losses;
  }

  Context context;
  Decoder decoder;
  ShardedModel model;
  Engine engine;
};

TEST_F(DelayedRuns, updates_beside_the_backward_pass_have_the_bits_of_updates_after_it) {
  for (const int of : {1, 2, 4})
    for (int stage = 0; stage <= (of == 1 ? 0 : 3); ++stage)
      for (const bool guarded : {false, true}) {
        const bool tied = (stage + guarded) % 2 == 0;
        std::vector<double> courses[2];
        int64_t up[2]{};
        for (const bool early : {false, true})
          run_ranks(test::contexts_of(of, guarded), [&](Communicator& ranks, const Context& context) {
            OffloadOptions offload = guarded ? OffloadOptions{.home = Pool::host, .sub_group = 1000} : files();
            offload.early = early;
            FreeRun run(ranks, context, stage, offload, tied);
            const std::vector<double> course = run.train(ranks.rank(), ranks.size());
            if (ranks.rank() == 0) courses[early] = course, up[early] = run.model.optimizer().traffic().up;
          });
        SCOPED_TRACE(fmt::format("{} ranks, stage {}, guarded {}", of, stage, guarded));
        EXPECT_TRUE(courses[0] == courses[1]);
        EXPECT_EQ(up[0], up[1]);
      }
}

/// All is infinite from the first loss on: no segment is updated, and the message says so.
TEST_F(DelayedRuns, nothing_is_updated_early_with_gradients_that_are_not_finite) {
  run_ranks(1, [&](Communicator& ranks, const Context& context) {
    OffloadOptions offload = files();
    offload.early = true;
    FreeRun run(ranks, context, 0, offload, false);
    run.model.with_parameters(0, [&](const Parameter&, const Tensor& whole) {
      context.run(Fill{.x = whole, .value = std::numeric_limits<double>::infinity()});
    });
    const std::string message = test::message_of<Error>([&] { run.train(0, 1); });
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
  for (const Way way : {Way::ordinary, Way::early, Way::delayed})
    run_ranks(1, [&](Communicator& ranks, const Context& context) {
      SlowFile file;
      OffloadOptions offload = files(20'000);
      offload.fault = file.fault();
      offload.early = way == Way::early;
      if (way == Way::delayed) offload.delay_after = 0;
      FreeRun run(ranks, context, 0, offload, /*tied=*/false);
      run.train(0, 1, 2);
      run.model.finish_pending_update();
      const int begun = file.calls;
      run.train(0, 1, 1);
      run.model.finish_pending_update();
      const int each = file.calls - begun;  // of an update
      if (way == Way::delayed) run.train(0, 1, 1);
      const int before = file.calls;
      const int awaited = way == Way::ordinary ? 0 : each;
      run.engine.set_wants_stop([&] {
        file.wait_for(awaited, before);
        return false;
      });
      const StateTimes started = run.model.optimizer().times();
      run.train(0, 1, 1);
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

}  // namespace
}  // namespace nought::delayed_update_test
