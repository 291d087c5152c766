// The home of masters and optimizer states changes no bit of an update: the device, the host beside a device that it
// has no access to, a file. What moves, and what each pool holds, is what the formulas say.
#include <cmath>
#include <map>

#include "support/guarded_context.h"
#include "support/message_of.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/comm/thread.h"
#include "nought/tensor/random.h"
#include "nought/zero/sharded_optimizer.h"

namespace nought {
namespace {

constexpr int kUpdates = 3;
constexpr double kLr = 1e-2;

struct Way {
  int ranks = 1, stage = 0;
  DType dtype = DType::f32;
  bool guarded = false;
  OffloadOptions offload = {};

  std::string str() const {
    return fmt::format("{} ranks, stage {}, {}, in the {} pool{}, tiles of {}, {} at once", ranks, stage,
                       name_of(dtype), name_of(offload.home), guarded ? " of the guarded device" : "",
                       offload.sub_group, offload.tiles());
  }
};

/// Sizes are odd, so that the borders of shards and tiles cut through parameters.
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
        dtype(way.dtype),
        units(make_units()),
        policy(Policy::stage(way.stage).for_ranks(ranks.size())),
        residency(context, ranks, policy, dtype, 0, units),
        reducer(context, ranks, {.policy = policy, .dtype = dtype, .wire = dtype}, units),
        optimizer(context, ranks, dtype, options, units, residency, reducer, way.offload) {
    optimizer.load(Start(), 0);
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
        const uint64_t key = stable_hash(parameters[i].name, static_cast<uint64_t>(step * 16 + ranks.rank()));
        std::vector<float> values;
        for (int64_t k = 0; k < into.numel(); ++k)
          values.push_back(static_cast<float>(std::round(normal_at(key, static_cast<uint64_t>(k)) * 64) / 64));
        context.run(Cast{.x = context.upload<float>(into.shape(), values), .y = into});
      }
      reducer.finish(of, unit);
    }
    reducer.settle();
    residency.settle();
    optimizer.update(kLr, 0.5);
    exchange();
    reducer.reset();
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
  DType dtype;
  std::vector<std::unique_ptr<Unit>> units;
  Policy policy;
  Residency residency;
  Reducer reducer;
  ShardedOptimizer optimizer;
};

/// Calls body(training) on each rank.
template <class Body>
void with_training(const Way& way, const OptimizerOptions& options, const Body& body) {
  run_ranks(test::contexts_of(way.ranks, way.guarded), [&](Communicator& ranks, const Context& context) {
    Training run(ranks, context, way, options);
    body(run);
  });
}

std::map<std::string, std::vector<float>> train(const Way& way, const OptimizerOptions& options) {
  std::map<std::string, std::vector<float>> result;
  with_training(way, options, [&](Training& run) {
    for (int step = 0; step < kUpdates; ++step) run.update(step);
    if (auto mine = run.all(); run.ranks.rank() == 0) result = std::move(mine);
  });
  return result;
}

class Offload : public testing::Test {
 protected:
  OffloadOptions to_host(int64_t sub_group) const { return {.home = Pool::host, .sub_group = sub_group}; }
  OffloadOptions to_file(int64_t sub_group, int64_t buffers = 12) const {
    return {.home = Pool::file,
            .folder = folder_.path().string(),
            .sub_group = sub_group,
            .reads_ahead = buffers >= 8,
            .writes_behind = buffers >= 12,
            .buffers = buffers,
            .aio = {.backend = AioBackend::threads}};
  }

  test::TempFolder folder_;
};

std::vector<std::pair<std::string, OptimizerOptions>> all_optimizers() {
  std::vector<std::pair<std::string, OptimizerOptions>> all{{"adamw", {}},
                                                            {"sgd", {.method = SgdOptions{.momentum = 0.9}}},
                                                            {"sgd without momentum", {.method = SgdOptions{}}},
                                                            {"adagrad", {.method = AdagradOptions{}}},
                                                            {"lion", {.method = LionOptions{}}},
                                                            {"lamb", {.method = LambOptions{}}},
                                                            {"muon", {.method = MuonOptions{}}},
                                                            {"adamw of 8 bits", {.state_block = 64}}};
  for (auto& [name, options] : all) options.weight_decay = 0.1;
  return all;
}

TEST_F(Offload, changes_no_bit_of_any_optimizer) {
  int turn = 0;
  for (const auto& [name, options] : all_optimizers())
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const int ranks : {1, 2}) {
        const int stage = ranks == 1 ? 0 : turn++ % 4;
        const auto expected = train({.ranks = ranks, .stage = stage, .dtype = dtype}, options);
        const int64_t tile = turn % 2 == 0 ? 100 : 5000;
        for (const Way& way :
             {Way{ranks, stage, dtype, true, to_host(tile)}, Way{ranks, stage, dtype, false, to_host(9)},
              Way{ranks, stage, dtype, false, to_file(tile)}, Way{ranks, stage, dtype, true, to_file(tile)}}) {
          SCOPED_TRACE(fmt::format("{}, {}", name, way.str()));
          EXPECT_EQ(train(way, options), expected);
        }
      }
}

TEST_F(Offload, changes_no_bit_at_any_size_of_tiles_and_number_of_buffers) {
  const OptimizerOptions options{.weight_decay = 0.1};
  const auto expected = train({.ranks = 4, .stage = 2, .dtype = DType::bf16}, options);
  for (const int64_t tile : {16, 64, 333, 1'000'000}) {
    for (const int64_t buffers : {4, 8, 12}) {
      const Way way{4, 2, DType::bf16, tile == 333, to_file(tile, buffers)};
      SCOPED_TRACE(way.str());
      EXPECT_EQ(train(way, options), expected);
    }
    const Way way{4, 2, DType::bf16, true, to_host(tile)};
    SCOPED_TRACE(way.str());
    EXPECT_EQ(train(way, options), expected);
  }
}

TEST_F(Offload, changes_no_bit_of_parameters_without_masters_that_are_rounded_at_random) {
  const OptimizerOptions options{.state_dtype = DType::bf16, .master_weights = false, .seed = 3};
  const auto expected = train({.ranks = 2, .stage = 1, .dtype = DType::bf16}, options);
  for (const Way& way : {Way{2, 1, DType::bf16, true, to_host(77)}, Way{2, 1, DType::bf16, false, to_file(77)},
                         Way{2, 1, DType::bf16, true, to_file(77)}}) {
    SCOPED_TRACE(way.str());
    EXPECT_EQ(train(way, options), expected);
  }
}

/// All that this rank updates.
int64_t trained_elements(const Training& run) {
  int64_t numel = 0;
  for (const SegmentIndex at : segments_of(run.units, /*trainable=*/true))
    for (const ParameterPiece& piece : pieces_in(*run.units[at.unit], at.segment, run.optimizer.scope(at)))
      numel += piece.in_segment.size();
  return numel;
}

TEST_F(Offload, two_bytes_per_parameter_flow_down_and_two_flow_up) {
  for (const int ranks : {1, 2, 4})
    with_training({ranks, 2, DType::bf16, true, to_host(100)}, {}, [&](Training& run) {
      const int64_t numel = trained_elements(run);
      for (int step = 0; step < 2; ++step) {
        const StateTraffic before = run.optimizer.traffic();
        run.update(step);
        EXPECT_EQ(run.optimizer.traffic() - before, (StateTraffic{.down = 2 * numel, .up = 2 * numel}));
      }
    });
}

TEST_F(Offload, twelve_bytes_per_parameter_are_read_and_twelve_written) {
  for (const bool guarded : {false, true})
    with_training({2, 1, DType::bf16, guarded, to_file(100)}, {}, [&](Training& run) {
      const int64_t numel = trained_elements(run), crosses = guarded ? 2 * numel : 0;
      const StateTraffic loaded = run.optimizer.traffic();
      EXPECT_EQ(loaded.read, 0);
      EXPECT_EQ(loaded.written, 12 * numel);
      run.update(0);
      EXPECT_EQ(run.optimizer.traffic() - loaded, (StateTraffic{crosses, crosses, 12 * numel, 12 * numel}));
    });
}

TEST_F(Offload, the_device_holds_no_state_and_the_host_what_updates_need) {
  constexpr int64_t kTile = 128, kLine = 64;
  with_training({1, 0, DType::bf16, true, to_host(kTile)}, {}, [&](Training& run) {
    run.update(0);
    const MemoryLedger& ledger = run.context.memory->ledger();
    EXPECT_EQ(ledger.peak(Category::optimizer), 0);
    int64_t states = 0;
    for (const auto& unit : run.units) {
      int64_t left = 0;
      for (const Parameter& parameter : unit->parameters()) left += parameter.range.size();
      for (; left > 0; left -= kTile) states += 3 * round_up(4 * std::min(left, kTile), kLine);
    }
    EXPECT_EQ(ledger.current(Category::optimizer, Pool::host), states);
    // Two tiles at once have gradients and parameters of 2 bytes.
    EXPECT_EQ(ledger.peak(Category::workspace, Pool::host), 2 * kTile * (2 + 2));
  });
}

TEST_F(Offload, states_in_a_file_take_memory_for_the_tiles_that_are_under_way_alone) {
  constexpr int64_t kTile = 128, kPage = 4096;
  for (const int64_t buffers : {4, 8, 12})
    with_training({1, 0, DType::bf16, false, to_file(kTile, buffers)}, {}, [&](Training& run) {
      const MemoryLedger& ledger = run.context.memory->ledger();
      run.context.memory->ledger().reset_peaks();
      run.update(0);
      EXPECT_EQ(ledger.peak(Category::optimizer), 0);
      EXPECT_EQ(ledger.peak(Category::workspace), buffers / 4 * (3 * kPage + kPage));
      EXPECT_EQ(ledger.current(Category::optimizer, Pool::host), 0);
      int64_t tiles = 0;
      for (const auto& unit : run.units) {
        int64_t numel = 0;
        for (const Parameter& parameter : unit->parameters()) numel += parameter.range.size();
        tiles += ceil_div(numel, kTile);
      }
      EXPECT_EQ(ledger.current(Category::optimizer, Pool::file), 3 * tiles * kSwapGrid);
    });
}

/// On a device that is the host, a home there is a view.
TEST_F(Offload, to_the_host_that_is_the_device_takes_no_byte_and_moves_none) {
  int64_t peaks[2]{};
  for (const bool offloads : {false, true})
    with_training({1, 0, DType::bf16, false, offloads ? to_host(100) : OffloadOptions{}}, {}, [&](Training& run) {
      run.update(0);
      const MemoryLedger& ledger = run.context.memory->ledger();
      peaks[offloads] = ledger.peak_total();
      EXPECT_EQ(ledger.peak_total(Pool::host), 0);
      EXPECT_EQ(run.optimizer.traffic(), StateTraffic{});
    });
  EXPECT_EQ(peaks[0], peaks[1]);
}

TEST_F(Offload, every_state_that_is_kept_is_visited) {
  for (const Way& way : {Way{}, Way{1, 0, DType::bf16, false, to_file(50)}, Way{1, 0, DType::bf16, true, to_host(50)}})
    with_training(way, {}, [&](Training& run) {
      std::map<StateKind, int64_t> visited;
      run.optimizer.for_each_kept([&](const Parameter&, StateKind kind, const Tensor& values) {
        EXPECT_TRUE(values.on_host());
        visited[kind] += values.numel();
      });
      const int64_t numel = trained_elements(run);
      EXPECT_EQ(visited[StateKind::exp_avg], numel);
      EXPECT_EQ(visited[StateKind::exp_avg_sq], numel);
      EXPECT_EQ(visited[StateKind::master], way.dtype == DType::f32 ? 0 : numel);
    });
}

TEST_F(Offload, names_the_rank_and_the_folder_that_is_not_there) {
  OffloadOptions offload = to_file(100);
  offload.folder += "/nowhere";
  EXPECT_THAT(
      test::message_of<IoError>([&] { with_training({.offload = offload}, {}, [](Training&) {}); }),
      testing::AllOf(testing::HasSubstr("rank 0"), testing::HasSubstr("nowhere"), testing::HasSubstr("nvme_path")));
}

}  // namespace
}  // namespace nought
