// Updates of a few small Units on ranks whose states and parameters have any offload tier. They start with values of
// their own for each state, so that what is read is what was loaded; gradients depend on the step alone.
#pragma once

#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/guarded_context.h"
#include "support/temp_folder.h"
#include <gtest/gtest.h>

#include "nought/comm/thread.h"
#include "nought/tensor/random.h"
#include "nought/zero/sharded_optimizer.h"

namespace nought::test {

inline constexpr int kUpdates = 3;
inline constexpr double kLr = 1e-2;

struct Way {
  int ranks = 1, stage = 0;
  DType dtype = DType::f32;
  bool guarded = false;
  OffloadOptions offload = {};
  ParameterOffload parameters = {};
  std::optional<DType> wire = {};
  int micro_batches = 1;
  int replicas = 1;                  // that `ranks` are shared out over
  bool drains = false;               // all work is done behind each Unit
  bool walks_back = false;           // from the last Unit to the first one, as a backward pass
  std::vector<double> factors = {};  // given: by step, on gradients in the update; 0: it is skipped

  std::string str() const {
    return fmt::format(
        "{} ranks, stage {}, {}, in the {} pool{}, tiles of {}, {} at once, {} of them moved, parameters in the {} "
        "pool",
        ranks, stage, name_of(dtype), name_of(offload.tier.pool), guarded ? " of the guarded device" : "",
        offload.sub_group, offload.tiles(), offload.ratio, name_of(parameters.tier.pool));
  }
};

/// Sizes are odd, so that the borders of shards and tiles cut through parameters.
inline std::vector<std::unique_ptr<Unit>> make_units() {
  std::vector<std::unique_ptr<Unit>> units;
  const Init init = Init::normal(0.5);
  const auto add = [&](const char* name) -> Unit& { return *units.emplace_back(std::make_unique<Unit>(name)); };
  add("embedding").add("embed.weight", {37, 12}, init, ParameterRole::embedding);
  for (const std::string block : {"block.0", "block.1"}) {
    Unit& unit = add(block.c_str());
    unit.add(block + ".norm.weight", {12}, init, ParameterRole::norm);
    unit.add(block + ".wide.weight", {12, 31}, init);
    unit.add(block + ".tall.weight", {31, 12}, init);
  }
  return units;
}

/// Starts with values that are other ones for each state, so that what is read is what was loaded.
struct Start final : StateSource {
  void fill(StateKind kind, const Parameter& parameter, std::span<const Interval> elements,
            const Tensor& destination) const override {
    const uint64_t key = stable_hash(parameter.name, static_cast<uint64_t>(kind));
    for_each_interval(elements, destination, [&](Interval interval, const Tensor& values) {
      visit_float(values.dtype(), [&](auto tag) {
        using T = typename decltype(tag)::type;
        for (int64_t i = interval.begin; i < interval.end; ++i) {
          const double value = normal_at(key, static_cast<uint64_t>(i));
          values.data<T>()[i - interval.begin] = T(static_cast<float>(is_square(kind) ? value * value : value));
        }
      });
    });
  }
};

struct Training {
  Training(Communicator& ranks, const Context& context, const Way& way, const OptimizerOptions& options)
      : context(context),
        ranks(ranks),
        mesh(way.replicas > 1 ? Mesh(ranks, GridSizes{.replicate = way.replicas, .shard = way.ranks / way.replicas})
                              : Mesh(ranks)),
        dtype(way.dtype),
        units(make_units()),
        micro_batches(way.micro_batches),
        drains(way.drains),
        walks_back(way.walks_back),
        factors(way.factors),
        policy(Policy::stage(way.stage).for_ranks(way.ranks / way.replicas)),
        residency(context, mesh, policy, dtype, 0, units, way.parameters),
        reducer(context, mesh,
                {.policy = policy, .gradient_dtype = dtype, .wire_dtype = way.wire, .offload_optimizer = way.offload},
                units),
        optimizer(context, mesh, dtype, options, units, residency, reducer, way.offload) {
    optimizer.load(Start(), 0);
    exchange();
  }
  void exchange() {
    residency.exchange_updates();
    residency.settle();
  }
  /// Writes the gradients of a step: those of the Unit `bad` are not finite.
  void form_gradients(int step, std::optional<size_t> bad = {}) {
    for (int i = 0; i < micro_batches; ++i) form_gradients(step * 8 + i, bad, i + 1 == micro_batches);
  }
  void form_gradients(int step, std::optional<size_t> bad, bool last) {
    Reducer::MicroBatch of = reducer.begin_micro_batch(last);
    for (size_t place = 0; place < units.size(); ++place) {
      const size_t unit = walks_back ? units.size() - 1 - place : place;
      const auto& parameters = units[unit]->parameters();
      for (size_t i = 0; i < parameters.size(); ++i) {
        const auto [into, accumulate] = reducer.sink(of, unit, i, i);
        const uint64_t key = stable_hash(parameters[i].name, static_cast<uint64_t>(step * 16 + ranks.rank()));
        std::vector<float> values;
        for (int64_t k = 0; k < into.numel(); ++k)
          values.push_back(static_cast<float>(std::round(normal_at(key, static_cast<uint64_t>(k)) * 64) / 64));
        if (unit == bad) values.back() = std::numeric_limits<float>::infinity();
        const Tensor x = context.upload<float>(into.shape(), values);
        if (accumulate) {
          context.run(AddTo{.x = x, .into = into});
        } else {
          context.run(Cast{.x = x, .y = into});
        }
      }
      reducer.finish(of, unit);
      if (drains) drain_streams();
      optimizer.lane().update_early();
    }
  }
  void update(int step) {
    optimizer.begin_early({kLr, 0.5});
    form_gradients(step);
    reducer.finish_step();
    if (norms) norms->push_back(context.to_host<double>(optimizer.sums_of_squares()));
    residency.settle();
    if (optimizer.complete()) exchange();
    const double factor = factors.empty() ? 1 : factors.at(static_cast<size_t>(step));
    if (factor == 0) {
      optimizer.abandon_early();
    } else if (optimizer.delays()) {
      optimizer.delay(kLr, 0.5 * factor);
    } else {
      optimizer.update(kLr, 0.5 * factor);
      exchange();
    }
    reducer.reset();
    optimizer.start();
  }
  /// Each group carries out its calls in their order.
  void drain_streams() {
    ranks.wait(ranks.all_reduce(context.zeros({ranks.size()}, DType::f32)), *context.stream);
    context.stream->synchronize();
  }
  void drain() {
    if (optimizer.complete()) exchange();
  }
  /// What rank 0 writes to a checkpoint, and its parameters.
  std::map<std::string, std::vector<float>> all() {
    std::map<std::string, std::vector<float>> values;
    for (const auto& state : optimizer.owned()) {
      auto& whole = values[fmt::format("{} of {}", name_of(state.kind), state.parameter->name)];
      const std::vector<float> part = context.on_host(optimizer.values(state)).to_vector<float>();
      EXPECT_EQ(static_cast<int64_t>(part.size()), state.in_parameter.size());
      whole.insert(whole.end(), part.begin(), part.end());
    }
    for (size_t unit = 0; unit < units.size(); ++unit) {
      residency.lease(unit);
      values[units[unit]->name()] = context.to_host<float>(residency.whole({unit, 0}));
      residency.release(unit);
    }
    return values;
  }

  Context context;
  Communicator& ranks;
  Mesh mesh;
  DType dtype;
  std::vector<std::unique_ptr<Unit>> units;
  int micro_batches;
  bool drains, walks_back;
  std::vector<double> factors;
  Policy policy;
  Residency residency;
  Reducer reducer;
  ShardedOptimizer optimizer;
  std::vector<std::vector<double>>* norms = nullptr;  // given: by step, this rank's sums of squares of the Units
};

/// Calls body(training) on each rank.
template <class Body>
void with_training(const Way& way, const OptimizerOptions& options, const Body& body) {
  run_ranks(contexts_of(way.ranks, way.guarded), [&](Communicator& ranks, const Context& context) {
    Training run(ranks, context, way, options);
    body(run);
  });
}

inline std::map<std::string, std::vector<float>> train(const Way& way, const OptimizerOptions& options) {
  std::map<std::string, std::vector<float>> result;
  with_training(way, options, [&](Training& run) {
    for (int step = 0; step < kUpdates; ++step) run.update(step);
    run.drain();
    if (auto mine = run.all(); run.ranks.rank() == 0) result = std::move(mine);
  });
  return result;
}

class Offload : public testing::Test {
 protected:
  OffloadOptions to_host(int64_t sub_group) const { return {.tier = {Pool::host}, .sub_group = sub_group}; }
  OffloadOptions to_file(int64_t sub_group, int64_t buffers = 12) const {
    return {.tier = {Pool::file, folder_.path().string(), {.backend = AioBackend::threads}},
            .sub_group = sub_group,
            .reads_ahead = buffers >= 8,
            .writes_behind = buffers >= 12,
            .buffers = buffers};
  }
  static OffloadOptions with_gradients(OffloadOptions options, bool early = false) {
    options.gradients_in_file = true, options.early = early;
    return options;
  }

  ParameterOffload parameters_in_file() const {
    return {.tier = {Pool::file, folder_.path().string(), {.backend = AioBackend::threads}}};
  }
  /// All tiers of parameters with all tiers of states.
  std::vector<Way> ways_of_parameters(int ranks, DType dtype) const {
    const ParameterOffload host{.tier = {Pool::host}};
    std::vector<Way> ways;
    for (const bool guarded : {false, true})
      for (const ParameterOffload& offload : {host, parameters_in_file()})
        for (const OffloadOptions& states : {OffloadOptions{}, to_host(100), to_file(333)})
          ways.push_back({ranks, 3, dtype, guarded, states, offload});
    return ways;
  }

  TempFolder folder_;
};

inline std::vector<std::pair<std::string, OptimizerOptions>> all_optimizers() {
  std::vector<std::pair<std::string, OptimizerOptions>> all{{"adamw", {}},
                                                            {"sgd", {.method = SgdOptions{.momentum = 0.9}}},
                                                            {"sgd without momentum", {.method = SgdOptions{}}},
                                                            {"adagrad", {.method = AdagradOptions{}}},
                                                            {"rmsprop", {.method = RmsPropOptions{}}},
                                                            {"lion", {.method = LionOptions{}}},
                                                            {"lamb", {.method = LambOptions{}}},
                                                            {"muon", {.method = MuonOptions{}}},
                                                            {"adamw of 8 bits", {.state_block = 64}}};
  for (auto& [name, options] : all) options.weight_decay = 0.1;
  return all;
}

/// All that this rank updates.
inline int64_t trained_elements(const Training& run) {
  int64_t numel = 0;
  for (const SegmentIndex at : segments_of(run.units, /*trainable=*/true))
    for (const ParameterPiece& piece : pieces_in(*run.units[at.unit], at.segment, run.optimizer.states().scope(at)))
      numel += piece.in_segment.size();
  return numel;
}

}  // namespace nought::test
