// The offload tier of masters and optimizer states changes no bit of an update: the device, the host beside a device
// that it has no access to, a file. What moves, and what each pool holds, is what the formulas say.
#include "support/message_of.h"
#include "support/offload_runs.h"
#include "support/size.h"
#include "support/sweep.h"
#include <gmock/gmock.h>

namespace nought::offload_test {
namespace {

using namespace test;

NOUGHT_SIZE(medium);
TEST_F(Offload, changes_no_bit_of_any_optimizer) {
  int turn = 0, way_turn = 0;
  for (const auto& [name, options] : all_optimizers())
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const int ranks : {1, 2}) {
        if (++turn % 5 % 2 == 1) continue;  // every optimizer, dtype, rank count and stage, but not each by each
        const int stage = ranks == 1 ? 0 : turn / 2 % 4;
        const auto expected = train({.ranks = ranks, .stage = stage, .dtype = dtype}, options);
        const int64_t tile = turn % 2 == 0 ? 100 : 5000;
        for (const Way& way :
             {Way{ranks, stage, dtype, true, to_host(tile)}, Way{ranks, stage, dtype, false, to_host(9)},
              Way{ranks, stage, dtype, false, to_file(tile)}, Way{ranks, stage, dtype, true, to_file(tile)}}) {
          if (!samples(way_turn++, 3)) continue;
          SCOPED_TRACE(fmt::format("{}, {}", name, way.str()));
          EXPECT_EQ(train(way, options), expected);
        }
      }
}

NOUGHT_SIZE(medium);
TEST_F(Offload, changes_no_bit_at_any_size_of_tiles_and_number_of_buffers) {
  const OptimizerOptions options{.weight_decay = 0.1};
  const auto expected = train({.ranks = 4, .stage = 2, .dtype = DType::bf16}, options);
  int64_t buffers = 4;
  for (const int64_t tile : {16, 64, 333, 1'000'000}) {
    for (int i = 0; i < 2; ++i, buffers = buffers == 12 ? 4 : buffers + 4) {
      const Way way{4, 2, DType::bf16, tile == 333, to_file(tile, buffers)};
      SCOPED_TRACE(way.str());
      EXPECT_EQ(train(way, options), expected);
    }
    const Way way{4, 2, DType::bf16, true, to_host(tile)};
    SCOPED_TRACE(way.str());
    EXPECT_EQ(train(way, options), expected);
  }
}

NOUGHT_SIZE(medium);
TEST_F(Offload, changes_no_bit_of_parameters_without_masters_that_are_rounded_at_random) {
  const OptimizerOptions options{.state_dtype = DType::bf16, .master_weights = false, .seed = 3};
  const auto expected = train({.ranks = 2, .stage = 1, .dtype = DType::bf16}, options);
  for (const Way& way : {Way{2, 1, DType::bf16, true, to_host(77)}, Way{2, 1, DType::bf16, false, to_file(77)},
                         Way{2, 1, DType::bf16, true, to_file(77)}}) {
    SCOPED_TRACE(way.str());
    EXPECT_EQ(train(way, options), expected);
  }
}

NOUGHT_SIZE(medium);
TEST_F(Offload, changes_no_bit_whatever_share_of_the_tiles_stays_on_the_device) {
  int turn = 0, optimizer_turn = 0;
  for (const auto& [name, options] : all_optimizers())
    for (const DType dtype : {DType::f32, DType::bf16}) {
      if (!samples(optimizer_turn++, 3)) continue;
      const int ranks = 1 + turn % 2, stage = ranks == 1 ? 0 : turn / 2 % 4;
      const auto expected = train({.ranks = ranks, .stage = stage, .dtype = dtype}, options);
      for (const double ratio : {0.0, 0.3, 0.8}) {
        Way way{ranks, stage, dtype, turn % 3 != 0, turn % 2 == 0 ? to_host(100) : to_file(100)};
        way.offload.ratio = ratio;
        if (stage == 3) way.parameters.tier.pool = Pool::host;
        SCOPED_TRACE(fmt::format("{}, {}", name, way.str()));
        EXPECT_EQ(train(way, options), expected);
        ++turn;
      }
    }
}

/// The tiles of `size` elements of all that a run without sharding updates, in their order: elements.
std::vector<int64_t> tiles_of(const Training& run, int64_t size) {
  std::vector<int64_t> tiles;
  for (const auto& unit : run.units) {
    int64_t left = 0;
    for (const Parameter& parameter : unit->parameters()) left += parameter.range.size();
    for (; left > 0; left -= size) tiles.push_back(std::min(left, size));
  }
  return tiles;
}

TEST_F(Offload, the_first_tiles_stay_and_the_share_of_the_ratio_moves) {
  constexpr int64_t kTile = 128, kLine = 64;
  for (const bool file : {false, true})
    for (const double ratio : {0.0, 0.25, 0.5, 0.9, 1.0}) {
      SCOPED_TRACE(fmt::format("ratio {}, file {}", ratio, file));
      Way way{1, 0, DType::bf16, true, file ? to_file(kTile) : to_host(kTile)};
      way.offload.ratio = ratio;
      with_training(way, {}, [&](Training& run) {
        const std::vector<int64_t> tiles = tiles_of(run, kTile);
        const auto n = static_cast<int64_t>(tiles.size()),
                   first = static_cast<int64_t>((1 - ratio) * static_cast<double>(n));
        int64_t stays = 0, moves = 0, elements = 0;
        for (int64_t i = 0; i < n; ++i) {
          const int64_t numel = tiles[static_cast<size_t>(i)], bytes = 3 * round_up(4 * numel, kLine);
          (i < first ? stays : moves) += file && i >= first ? 3 * kSwapGrid : bytes;
          if (i >= first) elements += numel;
        }
        run.context.stream->record().wait();  // what was loaded is on the device
        const MemoryLedger& ledger = run.context.memory->ledger();
        if (ratio > 0) {
          EXPECT_EQ(ledger.current(Category::optimizer), stays);
        }
        EXPECT_EQ(ledger.current(Category::optimizer, file ? Pool::file : Pool::host), moves);
        const StateTraffic before = run.optimizer.traffic();
        run.update(0);
        EXPECT_EQ(run.optimizer.traffic() - before,
                  (StateTraffic{2 * elements, 2 * elements, file ? 12 * elements : 0, file ? 12 * elements : 0}));
      });
    }
}

TEST_F(Offload, two_bytes_per_parameter_flow_down_and_two_flow_up) {
  for (const int ranks : {1, 2, 4})
    with_training({ranks, 2, DType::bf16, true, to_host(100)}, {}, [&](Training& run) {
      const int64_t numel = trained_elements(run);
      int64_t shards = 0;  // padding flows down with them
      for (const SegmentIndex at : segments_of(run.units, /*trainable=*/true))
        shards += run.residency.partition(at).shard();
      for (int step = 0; step < 2; ++step) {
        const StateTraffic before = run.optimizer.traffic();
        run.update(step);
        EXPECT_EQ(run.optimizer.traffic() - before,
                  (StateTraffic{.down = 2 * (ranks == 1 ? numel : shards), .up = 2 * numel}));
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

/// On a device that is the host, an offload tier there is a view.
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
  offload.tier.folder += "/nowhere/deeper";
  EXPECT_THAT(
      test::message_of<IoError>([&] { with_training({.offload = offload}, {}, [](Training&) {}); }),
      testing::AllOf(testing::HasSubstr("rank 0"), testing::HasSubstr("nowhere"), testing::HasSubstr("nvme_path")));
}

}  // namespace
}  // namespace nought::offload_test
