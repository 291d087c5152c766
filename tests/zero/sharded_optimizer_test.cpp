// Updates of every optimizer follow an f64 reference, and are the same bits at every ZeRO stage.
#include "nought/zero/sharded_optimizer.h"

#include "support/optimizer_reference.h"
#include "support/parameter_rules.h"
#include "support/size.h"
#include "support/sweep.h"
#include <gtest/gtest.h>

#include "nought/comm/thread.h"
#include "nought/tensor/random.h"

namespace nought::sharded_optimizer_test {
namespace {

using test::Numbers;
using test::Reference;

constexpr int kUpdates = 16;
constexpr double kLr = 1e-2, kGradientScale = 0.5;

/// An embedding, two blocks with wide, tall, batched and one-dimensional parameters, and a head. Sizes are odd, so that
/// the borders of shards cut through parameters.
std::vector<std::unique_ptr<Unit>> make_units() {
  std::vector<std::unique_ptr<Unit>> units;
  const Init init = Init::normal(0.5);
  const auto add = [&](const char* name) -> Unit& { return *units.emplace_back(std::make_unique<Unit>(name)); };
  add("embedding").add("embed.weight", {37, 12}, init, ParameterRole::embedding);
  for (const std::string block : {"block.0", "block.1"}) {
    Unit& unit = add(block.c_str());
    unit.add(block + ".norm.weight", {12}, init, ParameterRole::norm);
    unit.add(block + ".wide.weight", {12, 31}, init);
    unit.add(block + ".tall.weight", {31, 12}, init);
    unit.add(block + ".bias", {31}, init, ParameterRole::bias);
    unit.add(block + ".experts.weight", {2, 7, 9}, init, ParameterRole::expert);
  }
  add("head").add("head.weight", {37, 12}, init, ParameterRole::head);
  return units;
}

/// The gradient of one rank: a noisy pull towards a target, rounded so that sums over ranks are exact in any order.
double gradient_at(const std::string& name, int64_t index, int step, int rank) {
  const uint64_t key = stable_hash(name, static_cast<uint64_t>(step * 16 + rank));
  const double noise = normal_at(key, static_cast<uint64_t>(index));
  const double pull = normal_at(stable_hash(name, 99), static_cast<uint64_t>(index));
  return std::round((noise + pull) * 1024) / 1024;
}

struct Layout {
  int ranks = 1, stage = 0;
  DType dtype = DType::f32;
};

/// One rank's parameters under an optimizer.
struct Training {
  Training(Communicator& ranks, const Context& context, const Layout& layout, const OptimizerOptions& options)
      : ranks(ranks),
        units(make_units()),
        policy(Policy::stage(layout.stage).for_ranks(ranks.size())),
        residency(context, ranks, policy, layout.dtype, 0, units),
        reducer(context, ranks, {.policy = policy}, units),
        optimizer(context, ranks, layout.dtype, options, units, residency, reducer) {
    optimizer.load(InitialState(5), 0);
    exchange();
  }
  void exchange() {
    residency.exchange_updates();
    residency.settle();
  }
  void update(int step) {
    Reducer::MicroBatch of = reducer.begin_micro_batch(true);
    for (size_t unit = 0; unit < units.size(); ++unit) {
      const auto& parameters = units[unit]->parameters();
      for (size_t i = 0; i < parameters.size(); ++i) {
        const Tensor into = reducer.sink(of, unit, i, i).into;
        for (int64_t k = 0; k < into.numel(); ++k)
          into.data<float>()[k] = static_cast<float>(gradient_at(parameters[i].name, k, step, ranks.rank()));
      }
      reducer.finish(of, unit);
    }
    reducer.settle();
    residency.settle();
    optimizer.update(kLr, kGradientScale);
    exchange();
    reducer.reset();
  }
  /// All parameters of a Unit after another, whole.
  std::vector<float> weights() {
    std::vector<float> all;
    for (size_t unit = 0; unit < units.size(); ++unit) {
      residency.lease(unit);
      for (const Parameter& parameter : units[unit]->parameters()) {
        const Tensor whole = residency.whole({unit, parameter.segment});
        for (const float value : whole.flat(parameter.range.begin, parameter.range.end).to_vector<float>())
          all.push_back(value);
      }
      residency.release(unit);
    }
    return all;
  }

  Communicator& ranks;
  std::vector<std::unique_ptr<Unit>> units;
  Policy policy;
  Residency residency;
  Reducer reducer;
  ShardedOptimizer optimizer;
};

std::vector<float> train(const Layout& layout, const OptimizerOptions& options) {
  std::vector<float> weights;
  run_ranks(layout.ranks, [&](Communicator& ranks, const Context& context) {
    Training run(ranks, context, layout, options);
    for (int step = 0; step < kUpdates; ++step) run.update(step);
    const std::vector<float> mine = run.weights();
    if (ranks.rank() == 0) weights = mine;
  });
  return weights;
}

/// update(reference, parameter, Unit, values, gradient) as often for each parameter.
template <class Update>
Numbers follow(int ranks, double weight_decay, const Update& update) {
  Numbers all;
  const InitialState initial(5);
  const Context context = Context::reference();
  for (const auto& unit : make_units())
    for (const Parameter& parameter : unit->parameters()) {
      const int64_t numel = parameter.range.size();
      const Tensor start = context.empty({numel}, DType::f32);
      initial.fill(StateKind::master, parameter, {0, numel}, start);
      Numbers p = start.to_vector<double>(), g(p.size());
      Reference reference{.lr = kLr, .decay = parameter.decay ? weight_decay : 0};
      for (int step = 0; step < kUpdates; ++step) {
        for (size_t i = 0; i < g.size(); ++i) {
          g[i] = 0;
          for (int rank = 0; rank < ranks; ++rank)
            g[i] += kGradientScale * gradient_at(parameter.name, static_cast<int64_t>(i), step, rank);
        }
        update(reference, parameter, *unit, p, g);
      }
      all.insert(all.end(), p.begin(), p.end());
    }
  return all;
}

void expect_close(const std::vector<float>& actual, const Numbers& expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  double worst = 0;
  for (size_t i = 0; i < actual.size(); ++i)
    worst = std::max(worst, std::abs(double{actual[i]} - expected[i]) / (1 + std::abs(expected[i])));
  EXPECT_LE(worst, tolerance);
}

/// The optimizer follows the reference on 1, 2 and 3 ranks, and all stages agree bit for bit, in f32 and, on 2 ranks,
/// in bf16 (NOUGHT_LONG: on all).
template <class Update>
void expect_follows(const OptimizerOptions& options, const Update& update, double tolerance = 3e-6) {
  for (const int ranks : {1, 2, 3}) {
    const std::vector<float> first = train({.ranks = ranks, .stage = 0}, options);
    expect_close(first, follow(ranks, options.weight_decay, update), tolerance);
    for (const int stage : {1, 2, 3}) {
      SCOPED_TRACE(fmt::format("{} ranks, stage {}", ranks, stage));
      EXPECT_EQ(train({.ranks = ranks, .stage = stage}, options), first);
    }
    if (ranks != 2 && !test::runs_everything()) continue;
    const std::vector<float> narrow = train({.ranks = ranks, .stage = 0, .dtype = DType::bf16}, options);
    for (const int stage : {1, 2, 3}) {
      SCOPED_TRACE(fmt::format("{} ranks, stage {}, bf16", ranks, stage));
      EXPECT_EQ(train({.ranks = ranks, .stage = stage, .dtype = DType::bf16}, options), narrow);
    }
  }
}

NOUGHT_SIZE(medium);
TEST(ShardedOptimizer, adam_and_adamw_follow_the_reference_at_every_stage) {
  for (const bool decoupled : {true, false})
    expect_follows(
        {.method = AdamOptions{.decoupled_decay = decoupled}, .weight_decay = 0.1},
        [&](Reference& r, const Parameter&, const Unit&, Numbers& p, const Numbers& g) { r.adam(p, g, decoupled); });
}

NOUGHT_SIZE(medium);
TEST(ShardedOptimizer, sgd_follows_the_reference_at_every_stage) {
  for (const SgdOptions& sgd :
       {SgdOptions{}, SgdOptions{.momentum = 0.9, .dampening = 0.1}, SgdOptions{.momentum = 0.9, .nesterov = true}})
    expect_follows({.method = sgd, .weight_decay = 0.1},
                   [&](Reference& r, const Parameter&, const Unit&, Numbers& p, const Numbers& g) {
                     r.sgd(p, g, sgd.momentum, sgd.dampening, sgd.nesterov);
                   });
}

NOUGHT_SIZE(medium);
TEST(ShardedOptimizer, adagrad_follows_the_reference_at_every_stage) {
  expect_follows({.method = AdagradOptions{.eps = 1e-8}, .weight_decay = 0.1},
                 [](Reference& r, const Parameter&, const Unit&, Numbers& p, const Numbers& g) { r.adagrad(p, g); });
}

NOUGHT_SIZE(medium);
TEST(ShardedOptimizer, rmsprop_follows_the_reference_at_every_stage) {
  expect_follows(
      {.method = RmsPropOptions{.alpha = 0.9}, .weight_decay = 0.1},
      [](Reference& r, const Parameter&, const Unit&, Numbers& p, const Numbers& g) { r.rmsprop(p, g, 0.9); });
}

NOUGHT_SIZE(medium);
TEST(ShardedOptimizer, lion_follows_the_reference_at_every_stage) {
  expect_follows({.method = LionOptions{.beta2 = 0.99}, .weight_decay = 0.1},
                 [](Reference& r, const Parameter&, const Unit&, Numbers& p, const Numbers& g) {
                   r.beta2 = 0.99;
                   r.lion(p, g);
                 });
}

NOUGHT_SIZE(medium);
TEST(ShardedOptimizer, lamb_follows_the_reference_at_every_stage) {
  for (const bool bias_correction : {true, false}) {
    const double max_coeff = bias_correction ? 10.0 : 0.3;
    expect_follows(
        {.method = LambOptions{.max_coeff = max_coeff, .bias_correction = bias_correction}, .weight_decay = 0.1},
        [&](Reference& r, const Parameter&, const Unit&, Numbers& p, const Numbers& g) {
          r.lamb(p, g, 0.01, max_coeff, bias_correction);
        },
        1e-5);
  }
}

/// Eight-bit moments are coarse, so the path is near AdamW's; the bits still are the same at every stage.
NOUGHT_SIZE(medium);
TEST(ShardedOptimizer, eight_bit_adamw_stays_near_adamw_and_is_the_same_at_every_stage) {
  for (const int64_t block : {64, 256})
    expect_follows(
        {.weight_decay = 0.1, .state_block = block},
        [](Reference& r, const Parameter&, const Unit&, Numbers& p, const Numbers& g) { r.adam(p, g, true); }, 0.05);
}

/// Without fp32 masters, and with states of 16 bits: near the reference, and the same bits at every stage.
NOUGHT_SIZE(medium);
TEST(ShardedOptimizer, sixteen_bit_training_stays_near_the_reference_and_is_the_same_at_every_stage) {
  const auto adam = [](Reference& r, const Parameter&, const Unit&, Numbers& p, const Numbers& g) {
    r.adam(p, g, true);
  };
  const auto lamb = [](Reference& r, const Parameter&, const Unit&, Numbers& p, const Numbers& g) {
    r.lamb(p, g, 0.01, 10, true);
  };
  const auto expect = [](OptimizerOptions options, const auto& update) {
    options.weight_decay = 0.1;
    options.master_weights = false;
    for (const DType states : {DType::f32, DType::bf16}) {
      options.state_dtype = states;
      for (const int ranks : {1, 3}) {
        const std::vector<float> first = train({.ranks = ranks, .dtype = DType::bf16}, options);
        expect_close(first, follow(ranks, options.weight_decay, update), 0.05);
        for (const int stage : {1, 2, 3})
          EXPECT_EQ(train({.ranks = ranks, .stage = stage, .dtype = DType::bf16}, options), first) << stage;
      }
    }
  };
  expect({}, adam);
  expect({.method = LambOptions{}}, lamb);
}

TEST(ShardedOptimizer, sixteen_bit_training_keeps_what_it_says) {
  for (const auto& [states, per_element] : {std::pair(DType::f32, 8), std::pair(DType::bf16, 4)})
    run_ranks(1, [&, states = states, per_element = per_element](Communicator& ranks, const Context& context) {
      const Training run(ranks, context, {.dtype = DType::bf16}, {.state_dtype = states, .master_weights = false});
      int64_t expected = 0;
      for (const auto& unit : run.units)
        expected += 2 * round_up(Partition(unit->segments()[0].size, 1).padded() * per_element / 2, int64_t{64});
      EXPECT_EQ(context.memory->ledger().current(Category::optimizer), expected);
    });
}

/// Updates far below a step of bf16 are lost to the nearest value; at random they are made on average.
NOUGHT_SIZE(medium);
TEST(ShardedOptimizer, small_updates_are_lost_to_the_nearest_value_but_not_at_random) {
  const auto moved = [](bool stochastic) {
    const OptimizerOptions options{.method = SgdOptions{},
                                   .master_weights = false,
                                   .stochastic_rounding = stochastic,
                                   .groups = {{.pattern = ".", .lr_scale = 1e-4}}};
    const std::vector<float> after = train({.dtype = DType::bf16}, options);
    const Numbers start = follow(1, 0, [](Reference&, const Parameter&, const Unit&, Numbers&, const Numbers&) {});
    const Numbers end = follow(1, 0, [](Reference& r, const Parameter&, const Unit&, Numbers& p, const Numbers& g) {
      r.lr = kLr * 1e-4;
      r.sgd(p, g, 0, 0, false);
    });
    double along = 0, whole = 0;  // of the way that exact arithmetic goes
    for (size_t i = 0; i < end.size(); ++i) {
      const double from = double{static_cast<float>(bf16_t(static_cast<float>(start[i])))};
      along += (double{after[i]} - from) * (end[i] - start[i]);
      whole += (end[i] - start[i]) * (end[i] - start[i]);
    }
    return along / whole;
  };
  EXPECT_LT(std::abs(moved(false)), 0.3);
  EXPECT_NEAR(moved(true), 1, 0.5);
}

NOUGHT_SIZE(medium);
TEST(ShardedOptimizer, eight_bit_states_take_one_byte_and_a_scale_per_block) {
  for (const int64_t block : {0, 256})
    run_ranks(1, [&](Communicator& ranks, const Context& context) {
      const Training run(ranks, context, {}, {.state_block = block});
      constexpr int64_t kGranularity = 64;  // of the ledger's Buffers
      int64_t expected = 0;
      for (const auto& unit : run.units) {
        int64_t blocks = 0;
        for (const Parameter& parameter : unit->parameters())
          if (block > 0) blocks += ceil_div(parameter.range.size(), block);
        const int64_t padded = Partition(unit->segments()[0].size, 1).padded();
        expected += 2 * (round_up(padded * (block > 0 ? 1 : 4), kGranularity) + round_up(4 * blocks, kGranularity));
      }
      EXPECT_EQ(context.memory->ledger().current(Category::optimizer), expected);
    });
}

NOUGHT_SIZE(medium);
TEST(ShardedOptimizer, sgd_without_momentum_keeps_no_state_and_muon_keeps_one_for_matrices) {
  run_ranks(1, [&](Communicator& ranks, const Context& context) {
    const Training sgd(ranks, context, {}, {.method = SgdOptions{}});
    EXPECT_EQ(context.memory->ledger().current(Category::optimizer), 0);
  });
  run_ranks(1, [&](Communicator& ranks, const Context& context) {
    const Training run(ranks, context, {}, {.method = MuonOptions{}});
    for (const auto& state : run.optimizer.owned()) {
      const Parameter& parameter = *state.parameter;
      const bool is_muon = state.kind == StateKind::momentum_buffer;
      const bool hidden_matrix = parameter.name.starts_with("block") && parameter.shape.rank() > 1;
      if (state.kind != StateKind::master) {
        EXPECT_EQ(is_muon, hidden_matrix) << parameter.name;
      }
    }
  });
}

NOUGHT_SIZE(medium);
TEST(ShardedOptimizer, parameter_groups_scale_the_rate_and_choose_the_decay_by_name) {
  const OptimizerOptions options{.weight_decay = 0.1,
                                 .groups = {{.pattern = "norm|bias$", .lr_scale = 0.5, .weight_decay = 0.3},
                                            {.pattern = "^block\\.1", .lr_scale = 2}}};
  expect_follows(options, [](Reference& r, const Parameter& parameter, const Unit&, Numbers& p, const Numbers& g) {
    const bool first = !parameter.decay;
    r.lr = kLr * (first ? 0.5 : parameter.name.starts_with("block.1") ? 2 : 1);
    if (first) r.decay = 0.3;
    r.adam(p, g, true);
  });
  EXPECT_THROW(test::rules_for({.groups = {{.pattern = "("}}}, *make_units()[0]), ConfigError);
}

NOUGHT_SIZE(medium);
TEST(ShardedOptimizer, muon_follows_the_reference_at_every_stage_and_sees_whole_matrices) {
  expect_follows(
      {.method = MuonOptions{.others = {.beta2 = 0.95}}, .weight_decay = 0.1},
      [](Reference& r, const Parameter& parameter, const Unit& unit, Numbers& p, const Numbers& g) {
        r.beta2 = 0.95;
        const Shape& shape = parameter.shape;
        if (shape.rank() < 2 || unit.name() == "embedding" || unit.name() == "head") {
          return r.adam(p, g, true);
        }
        if (shape.rank() == 2) {
          return r.muon(p, g, static_cast<size_t>(shape[0]), static_cast<size_t>(shape[1]), 0.95);
        }
        // Experts are matrices of their own; the reference keeps one momentum for all of them.
        const auto size = static_cast<std::ptrdiff_t>(p.size()) / 2;
        const Numbers momentum = r.m.empty() ? Numbers(p.size()) : r.m;
        Numbers after;
        for (const std::ptrdiff_t begin : {std::ptrdiff_t{0}, size}) {
          Numbers part(p.begin() + begin, p.begin() + begin + size);
          r.m.assign(momentum.begin() + begin, momentum.begin() + begin + size);
          r.muon(part, Numbers(g.begin() + begin, g.begin() + begin + size), 7, 9, 0.95);
          std::copy(part.begin(), part.end(), p.begin() + begin);
          after.insert(after.end(), r.m.begin(), r.m.end());
        }
        r.m = after;
      },
      2e-4);
}

}  // namespace
}  // namespace nought::sharded_optimizer_test
