// What ShardedOptimizer hands to the optimizers: betas that follow a cycle, the offset and the update that a random
// rounding is drawn for, and the factors on the rate of every kind of optimizer.
#include <cmath>
#include <functional>

#include "support/optimizer_reference.h"
#include "support/size.h"
#include <gtest/gtest.h>

#include "nought/comm/thread.h"
#include "nought/tensor/random.h"
#include "nought/zero/sharded_optimizer.h"

namespace nought::optimizer_seams_test {
namespace {

using test::Numbers;
using test::Reference;

struct Trial {
  Shape shape{6, 50};
  int ranks = 1, stage = 1, updates = 6;
  DType dtype = DType::f32;
  double lr = 1e-2;
  bool steady = false;  // every update has the gradient of the first
};

double start_at(int64_t i) { return normal_at(3, static_cast<uint64_t>(i)); }
double gradient_at(int64_t i, int step) {
  return normal_at(17 + static_cast<uint64_t>(step), static_cast<uint64_t>(i));
}

/// Any parameter starts with start_at(); other states with 0.
struct Start final : StateSource {
  void fill(StateKind kind, const Parameter&, std::span<const Interval> elements,
            const Tensor& destination) const override {
    for_each_interval(elements, destination, [&](Interval interval, const Tensor& values) {
      visit_float(values.dtype(), [&](auto tag) {
        using T = typename decltype(tag)::type;
        for (int64_t i = interval.begin; i < interval.end; ++i)
          values.data<T>()[i - interval.begin] = T(static_cast<float>(kind == StateKind::master ? start_at(i) : 0));
      });
    });
  }
};

/// A Unit "block.0" with one parameter "weight" after all updates; observe(optimizer, weights) after each. The gradient
/// is the same for any number of ranks: rank 0 has it, the others have zeros.
std::vector<float> train(const Trial& trial, const OptimizerOptions& options,
                         const std::function<void(const std::vector<float>&)>& observe = {}) {
  std::vector<float> result;
  run_ranks(trial.ranks, [&](Communicator& ranks, const Context& context) {
    std::vector<std::unique_ptr<Unit>> units;
    units.push_back(std::make_unique<Unit>("block.0"));
    units[0]->add("norm", {7}, Init::ones(), ParameterRole::norm);  // so that the weight begins within a shard
    units[0]->add("weight", trial.shape, Init::zeros());
    const Policy policy = Policy::stage(trial.stage).for_ranks(ranks.size());
    Residency residency(context, ranks, policy, trial.dtype, 0, units);
    Reducer reducer(context, ranks, {.policy = policy}, units);
    ShardedOptimizer optimizer(context, ranks, trial.dtype, options, units, residency, reducer);
    const auto weights = [&] {
      residency.exchange_updates();
      residency.settle();
      residency.lease(0);
      const Interval range = units[0]->parameters()[1].range;
      const std::vector<float> values = residency.whole({0, 0}).flat(range.begin, range.end).to_vector<float>();
      residency.release(0);
      return values;
    };
    optimizer.load(Start(), 0);
    weights();
    for (int step = 0; step < trial.updates; ++step) {
      Reducer::MicroBatch of = reducer.begin_micro_batch(true);
      for (size_t parameter : {size_t{0}, size_t{1}}) {
        const Tensor into = reducer.sink(of, 0, parameter, parameter).into;
        for (int64_t i = 0; i < into.numel(); ++i)
          into.data<float>()[i] =
              ranks.rank() == 0 && parameter == 1 ? static_cast<float>(gradient_at(i, trial.steady ? 0 : step)) : 0;
      }
      reducer.finish(of, 0);
      reducer.settle();
      residency.settle();
      optimizer.update(trial.lr, 1);
      const std::vector<float> now = weights();
      reducer.reset();
      if (ranks.rank() != 0) continue;
      if (observe) observe(now);
      result = now;
    }
  });
  return result;
}

/// change(reference, step) before each update of the f64 reference; update(reference, parameter, gradient).
template <class Update>
Numbers follow(const Trial& trial, const Update& update) {
  Numbers p, g(static_cast<size_t>(trial.shape.numel()));
  for (int64_t i = 0; i < trial.shape.numel(); ++i) p.push_back(double{static_cast<float>(start_at(i))});
  Reference reference{.lr = trial.lr};
  for (int step = 0; step < trial.updates; ++step) {
    for (size_t i = 0; i < g.size(); ++i) g[i] = double{static_cast<float>(gradient_at(static_cast<int64_t>(i), step))};
    update(reference, step, p, g);
  }
  return p;
}

void expect_close(const std::vector<float>& actual, const Numbers& expected, double tolerance = 3e-6) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i)
    ASSERT_NEAR(actual[i], expected[i], tolerance * (1 + std::abs(expected[i]))) << i;
}

// DeepSpeed's OneCycle over 2 + 2 updates: the momentum of an update is the one that was set after the update before.
TEST(OptimizerSeams, betas_of_one_cycle_are_those_of_the_update_that_uses_them) {
  const Schedule cycle{.type = ScheduleType::one_cycle,
                       .cycle = {.first_steps = 2, .second_steps = 2, .min_momentum = 0.6, .max_momentum = 0.9}};
  const Numbers beta1{0.6, 0.75, 0.6, 0.75, 0.9, 0.9};
  const Trial trial;
  for (const int ranks : {1, 2}) {
    Trial each = trial;
    each.ranks = ranks;
    expect_close(train(each, {.momentum_cycle = cycle}),
                 follow(each, [&](Reference& r, int step, Numbers& p, const Numbers& g) {
                   r.beta1 = beta1[static_cast<size_t>(step)], r.beta2 = 0.99;
                   r.adam(p, g, true);
                 }));
  }
}

TEST(OptimizerSeams, a_cycle_moves_the_betas_of_optimizers_that_give_a_direction_too) {
  const Schedule cycle{.type = ScheduleType::one_cycle,
                       .cycle = {.first_steps = 2, .second_steps = 2, .min_momentum = 0.6, .max_momentum = 0.9}};
  const Numbers beta1{0.6, 0.75, 0.6, 0.75, 0.9, 0.9};
  const Trial trial;
  expect_close(train(trial, {.method = LambOptions{}, .momentum_cycle = cycle}),
               follow(trial,
                      [&](Reference& r, int step, Numbers& p, const Numbers& g) {
                        r.beta1 = beta1[static_cast<size_t>(step)], r.beta2 = 0.99;
                        r.lamb(p, g, 0.01, 10, true);
                      }),
               1e-5);
}

/// Longer than the stretch of 65536 elements that is rounded at once, so that stretches and shards begin anywhere.
NOUGHT_SIZE(medium);
TEST(OptimizerSeams, random_rounding_is_the_same_for_every_number_of_ranks) {
  for (const DType states : {DType::f32, DType::bf16}) {
    const OptimizerOptions options{.state_dtype = states, .master_weights = false, .seed = 5};
    Trial trial{.shape = {300, 500}, .updates = 3, .dtype = DType::bf16};
    const std::vector<float> one = train(trial, options);
    for (const int ranks : {2, 3})
      for (const int stage : {0, 3}) {
        trial.ranks = ranks, trial.stage = stage;
        EXPECT_EQ(train(trial, options), one) << ranks << " ranks, stage " << stage << ", states " << name_of(states);
      }
  }
}

/// An update far below the step of bf16 moves few elements; which ones is drawn anew in every update and for every
/// seed.
TEST(OptimizerSeams, random_rounding_draws_anew_in_every_update) {
  const auto moves = [](uint64_t seed) {
    std::vector<std::vector<float>> weights;
    std::vector<float> before;
    for (int64_t i = 0; i < 40000; ++i) before.push_back(float(bf16_t(static_cast<float>(start_at(i)))));
    std::vector<std::vector<bool>> moved;
    train({.shape = {200, 200}, .updates = 2, .dtype = DType::bf16, .lr = 5e-5, .steady = true},
          {.method = LionOptions{}, .master_weights = false, .seed = seed}, [&](const std::vector<float>& now) {
            moved.emplace_back();
            for (size_t i = 0; i < now.size(); ++i) moved.back().push_back(now[i] != before[i]);
            before = now;
          });
    return moved;
  };
  const auto overlap = [](const std::vector<bool>& a, const std::vector<bool>& b) {
    double both = 0, one = 0;
    for (size_t i = 0; i < a.size(); ++i) both += a[i] && b[i], one += a[i];
    return both / one;
  };
  const auto first = moves(1), second = moves(2);
  EXPECT_LT(overlap(first[0], first[1]), 0.6);
  EXPECT_LT(overlap(first[0], second[0]), 0.6);
  EXPECT_GT(overlap(first[0], moves(1)[0]), 0.999);
}

TEST(OptimizerSeams, a_groups_factor_reaches_the_rate_of_optimizers_that_give_a_direction) {
  const std::vector<ParameterGroup> groups{{.pattern = "^weight$", .lr_scale = 3}};
  Trial trial;
  const auto tripled = [](Reference& r) { r.lr = 3e-2; };
  expect_close(train(trial, {.method = LambOptions{}, .groups = groups}),
               follow(trial,
                      [&](Reference& r, int, Numbers& p, const Numbers& g) {
                        tripled(r);
                        r.lamb(p, g, 0.01, 10, true);
                      }),
               1e-5);
  expect_close(train(trial, {.method = MuonOptions{}, .groups = groups}),
               follow(trial,
                      [&](Reference& r, int, Numbers& p, const Numbers& g) {
                        tripled(r);
                        r.muon(p, g, 6, 50, 0.95);
                      }),
               2e-4);
}

/// Muon's own factors: matrices of blocks take one, all else the other.
TEST(OptimizerSeams, muon_has_a_rate_for_matrices_and_one_for_all_others) {
  const OptimizerOptions options{.method = MuonOptions{.lr_scale = 2, .others_lr_scale = 5}};
  Trial matrix;
  expect_close(train(matrix, options),
               follow(matrix,
                      [](Reference& r, int, Numbers& p, const Numbers& g) {
                        r.lr = 2e-2;
                        r.muon(p, g, 6, 50, 0.95);
                      }),
               2e-4);
  Trial vector;
  vector.shape = {300};
  expect_close(train(vector, options), follow(vector, [](Reference& r, int, Numbers& p, const Numbers& g) {
                 r.lr = 5e-2;
                 r.adam(p, g, true);
               }));
}

/// Eight-bit states of every optimizer that can have them: signed moments and sums of squares have codes of their own.
TEST(OptimizerSeams, eight_bit_states_follow_every_optimizer) {
  Trial trial;
  const auto expect = [&](const Method& method, const auto& update) {
    expect_close(train(trial, {.method = method, .state_block = 64}), follow(trial, update), 0.02);
  };
  expect(SgdOptions{.momentum = 0.9},
         [](Reference& r, int, Numbers& p, const Numbers& g) { r.sgd(p, g, 0.9, 0, false); });
  expect(AdagradOptions{}, [](Reference& r, int, Numbers& p, const Numbers& g) { r.adagrad(p, g); });
  expect(LambOptions{}, [](Reference& r, int, Numbers& p, const Numbers& g) { r.lamb(p, g, 0.01, 10, true); });
}

}  // namespace
}  // namespace nought::optimizer_seams_test
