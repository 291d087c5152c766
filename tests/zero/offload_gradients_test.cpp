// Sums of gradients in files have the bits of those in memory, and so have updates and norms. What is read and written,
// and what memory is left to hold, is what the formulas say.
#include <atomic>
#include <cerrno>

#include "support/message_of.h"
#include "support/offload_runs.h"
#include "support/size.h"
#include "support/swap_fault.h"
#include "support/sweep.h"
#include <gmock/gmock.h>

#include "nought/aio/pieces.h"
#include "nought/zero/placement.h"

namespace nought::offload_gradients_test {
namespace {

using namespace test;

struct Outcome {
  std::map<std::string, std::vector<float>> states;
  std::vector<std::vector<double>> norms;  // of rank 0
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

Outcome outcome_of(const Way& way, const OptimizerOptions& options) {
  Outcome outcome;
  with_training(way, options, [&](Training& run) {
    std::vector<std::vector<double>> norms;
    run.norms = &norms;
    for (int step = 0; step < test::kUpdates; ++step) run.update(step);
    if (auto mine = run.all(); run.ranks.rank() == 0) outcome = {std::move(mine), norms};
  });
  return outcome;
}

NOUGHT_SIZE(medium);
TEST_F(Offload, of_gradients_to_files_changes_no_bit_of_any_optimizer) {
  int turn = 0;
  for (const auto& [name, options] : all_optimizers())
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const int ranks : {1, 2, 4}) {
        if (++turn % 5 % 2 == 1) continue;  // every optimizer, dtype and rank count, but not each by each
        if (!samples(turn / 5, 2)) continue;
        const int stage = 2 + turn / 2 % 2, micro_batches = 1 + turn % 3;
        Way way{.ranks = ranks, .stage = stage, .dtype = dtype, .micro_batches = micro_batches};
        if (turn % 4 == 0) way.wire = DType::f32;
        const Outcome expected = outcome_of(way, options);  // gradients do not depend on the order of the Units
        way.guarded = turn % 2 == 0, way.walks_back = turn % 5 < 3;
        way.offload = with_gradients(turn % 7 < 4 ? to_file(100) : to_file(5000, 4), /*early=*/turn % 3 == 0);
        SCOPED_TRACE(fmt::format("{}, {}, {} micro-batches", name, way.str(), micro_batches));
        EXPECT_EQ(outcome_of(way, options), expected);
      }
}

NOUGHT_SIZE(medium);
TEST_F(Offload, of_gradients_works_beside_parameters_in_files) {
  for (const int ranks : {1, 2})
    for (const bool guarded : {false, true}) {
      Way way{.ranks = ranks, .stage = 3, .dtype = DType::bf16, .micro_batches = 2};
      const Outcome expected = outcome_of(way, {});
      way.guarded = guarded, way.offload = with_gradients(to_file(333), true), way.parameters = parameters_in_file();
      SCOPED_TRACE(way.str());
      EXPECT_EQ(outcome_of(way, {}), expected);
    }
}

NOUGHT_SIZE(medium);
TEST_F(Offload, of_everything_changes_no_bit_of_fp16_whoever_reads_and_writes_the_files) {
  int turn = 0;
  for (const auto& [name, options] : all_optimizers())
    for (const int ranks : {1, 2, 4}) {
      if (++turn % 5 % 2 == 1) continue;  // every optimizer and rank count, but not each by each
      if (!samples(turn / 5, 2)) continue;
      Way way{.ranks = ranks, .stage = 3, .dtype = DType::f16, .micro_batches = 2};
      const Outcome expected = outcome_of(way, options);
      way.guarded = turn / 2 % 2 == 0;
      way.offload = with_gradients(to_file(333)), way.parameters = parameters_in_file();
      const AioBackend backend = turn % 3 == 0 ? AioBackend::threads : AioBackend::automatic;
      way.offload.tier.aio.backend = way.parameters.tier.aio.backend = backend;
      SCOPED_TRACE(fmt::format("{}, {}, by {}", name, way.str(), name_of(backend)));
      EXPECT_EQ(outcome_of(way, options), expected);
      way.offload.gradients_in_file = false;
      EXPECT_EQ(outcome_of(way, options), expected);
    }
}

/// 24 bytes of states, and those of gradients: each micro-batch writes what the rank keeps of them, all but the first
/// read it before, and the update reads what it updates.
NOUGHT_SIZE(medium);
TEST_F(Offload, of_gradients_moves_two_bytes_per_parameter_and_micro_batch_each_way) {
  for (const int ranks : {1, 2})
    for (const bool guarded : {false, true})
      for (const int micro_batches : {1, 3}) {
        const Way way{.ranks = ranks,
                      .stage = 2,
                      .dtype = DType::bf16,
                      .guarded = guarded,
                      .offload = with_gradients(to_file(100)),
                      .micro_batches = micro_batches,
                      .walks_back = true};
        SCOPED_TRACE(fmt::format("{}, {} micro-batches", way.str(), micro_batches));
        with_training(way, {}, [&](Training& run) {
          const int64_t numel = trained_elements(run);
          int64_t shards = 0;  // with their padding
          for (const SegmentIndex at : segments_of(run.units, /*trainable=*/true))
            shards += run.residency.partition(at).shard();
          for (int step = 0; step < 2; ++step) {
            const StateTraffic before = run.optimizer.traffic();
            run.update(step);
            const StateTraffic moved = run.optimizer.traffic() - before;
            EXPECT_EQ(moved.written, 12 * numel + 2 * micro_batches * shards);
            EXPECT_EQ(moved.read, 12 * numel + 2 * (micro_batches - 1) * shards + 2 * numel);
            EXPECT_EQ(moved.down, guarded ? 2 * micro_batches * shards : 0);
          }
        });
      }
}

TEST_F(Offload, of_gradients_leaves_memory_those_of_units_that_are_under_way) {
  constexpr int64_t kPage = 4096, kLine = 64;
  Way way{.dtype = DType::bf16, .offload = with_gradients(to_file(100)), .micro_batches = 1, .walks_back = true};
  with_training(way, {}, [&](Training& run) {
    const MemoryLedger& ledger = run.context.memory->ledger();
    std::vector<int64_t> wholes;  // as they are counted, and in the file
    int64_t in_file = 0;
    for (const SegmentIndex at : segments_of(run.units, /*trainable=*/true)) {
      const int64_t bytes = 2 * run.residency.partition(at).padded();
      wholes.push_back(round_up(bytes + kPage, kLine));
      in_file += round_up(bytes, kSwapGrid);
    }
    ASSERT_EQ(wholes.size(), 3u);
    for (int step = 0; step < 2; ++step) {
      run.context.memory->ledger().reset_peaks();
      run.update(step);
      EXPECT_EQ(ledger.current(Category::gradients), 0);
      EXPECT_EQ(ledger.peak(Category::gradients), std::max(wholes[0] + wholes[1], wholes[1] + wholes[2]));
    }
    EXPECT_EQ(ledger.current(Category::gradients, Pool::file), in_file);
  });
  // With accumulation those that come next are on their way, too.
  way.micro_batches = 3;
  with_training(way, {}, [&](Training& run) {
    int64_t all = 0;
    for (const SegmentIndex at : segments_of(run.units, /*trainable=*/true))
      all += round_up(2 * run.residency.partition(at).padded() + kPage, kLine);
    run.update(0);
    const MemoryLedger& ledger = run.context.memory->ledger();
    EXPECT_EQ(ledger.current(Category::gradients), 0);
    EXPECT_EQ(ledger.peak(Category::gradients), all) << "one is written, one added to, one read";
  });
}

/// Gradients of one element each, by hand.
struct Reductions {
  Reductions(Communicator& ranks, const Context& context, bool in_file, const std::string& folder, DType dtype)
      : context(context),
        ranks(ranks),
        units(make_units()),
        reducer(context, ranks, options(in_file, folder, dtype), units) {}
  static ShardingOptions options(bool in_file, const std::string& folder, DType dtype) {
    ShardingOptions options{.policy = Policy::stage(2), .gradient_dtype = dtype};
    if (!in_file) return options;
    options.offload_optimizer.tier = {Pool::file, folder, {.backend = AioBackend::threads}};
    options.offload_optimizer.gradients_in_file = true;
    return options;
  }
  void write(Reducer::MicroBatch& of, size_t unit, size_t parameter, double value, bool early = false) {
    const auto [into, accumulate] = reducer.sink(of, unit, parameter, parameter, early);
    const Tensor x = context.empty(into.shape(), into.dtype());
    context.run(Fill{.x = x, .value = value});
    if (accumulate) return context.run(AddTo{.x = x, .into = into});
    context.run(Cast{.x = x, .y = into});
  }
  void write_all(Reducer::MicroBatch& of, size_t unit, double value) {
    for (size_t i = 0; i < units[unit]->parameters().size(); ++i) write(of, unit, i, value + static_cast<double>(i));
  }
  std::vector<float> sums() {
    reducer.finish_step();
    std::vector<float> all;
    for (const SegmentIndex at : segments_of(units, /*trainable=*/true)) {
      const std::vector<float> mine = context.to_host<float>(context.on_device(reducer.owned(at)));
      all.insert(all.end(), mine.begin(), mine.end());
      all.push_back(static_cast<float>(square_of(at)));
    }
    reducer.reset();
    return all;
  }
  /// The sum of squares that counts in the norm.
  double square_of(SegmentIndex at) {
    if (const auto number = reducer.stored(at))
      return context.to_host<double>(reducer.store()->square(*number)).front();
    const Unit& unit = *units[at.unit];
    const Segment& segment = unit.segments()[at.segment];
    const Mesh mesh(ranks);
    const auto [begin, end] = counted_for_all(segment, Partition(segment.size, ranks.size()), mesh);
    const Tensor sum = context.empty({1}, DType::f64);
    context.run(SumSquares{.x = reducer.owned(at).flat(begin, end), .out = sum});
    return context.to_host<double>(sum).front();
  }
  Context context;
  Communicator& ranks;
  std::vector<std::unique_ptr<Unit>> units;
  Reducer reducer;
};

/// The sums, and their squares, of two steps of body(reductions), on rank 0, in memory and in a file.
template <class Body>
void expect_the_same_in_a_file(const std::string& folder, const Body& body) {
  for (const int ranks : {1, 2})
    for (const bool guarded : {false, true})
      for (const DType dtype : {DType::f32, DType::bf16}) {
        std::vector<float> sums[2];
        for (const bool in_file : {false, true})
          run_ranks(contexts_of(ranks, guarded), [&](Communicator& group, const Context& context) {
            Reductions run(group, context, in_file, folder, dtype);
            std::vector<float> mine;
            for (int step = 0; step < 2; ++step) {
              body(run, 0.1 * (group.rank() + 1) + step);
              const std::vector<float> each = run.sums();
              mine.insert(mine.end(), each.begin(), each.end());
            }
            if (group.rank() == 0) sums[in_file] = mine;
          });
        EXPECT_EQ(sums[0], sums[1]) << ranks << " ranks, guarded " << guarded << ", " << name_of(dtype);
        EXPECT_GT(sums[0].size(), 0u);
      }
}

TEST_F(Offload, of_gradients_keeps_the_sum_of_a_unit_that_later_micro_batches_leave_out) {
  expect_the_same_in_a_file(folder_.path().string(), [](Reductions& run, double value) {
    for (int i = 0; i < 3; ++i) {
      Reducer::MicroBatch of = run.reducer.begin_micro_batch(i == 2);
      for (size_t unit = 3; unit-- > 0;) {
        if (unit == 1 && i > 0) continue;  // never in the last one, and not in that before
        if (unit == 2) continue;           // never
        run.write_all(of, unit, value * (i + 1));
        run.reducer.finish(of, unit);
      }
    }
  });
}

/// Two micro-batches whose passes are interleaved, and weights whose gradients come early.
TEST_F(Offload, of_gradients_adds_what_several_micro_batches_write_at_once) {
  expect_the_same_in_a_file(folder_.path().string(), [](Reductions& run, double value) {
    for (const bool last : {false, true}) {
      Reducer::MicroBatch a = run.reducer.begin_micro_batch(false), b = run.reducer.begin_micro_batch(last);
      for (size_t unit = 3; unit-- > 0;) {
        run.write(a, unit, 0, value, /*early=*/true);
        run.write(b, unit, 0, 2 * value, /*early=*/true);
      }
      for (size_t unit = 3; unit-- > 0;) {
        for (size_t i = 1; i < run.units[unit]->parameters().size(); ++i) run.write(a, unit, i, 3 * value);
        run.reducer.finish(a, unit);
      }
      for (size_t unit = 3; unit-- > 0;) {
        for (size_t i = 1; i < run.units[unit]->parameters().size(); ++i) run.write(b, unit, i, 5 * value);
        run.reducer.finish(b, unit);
      }
    }
  });
}

TEST_F(Offload, of_gradients_stays_in_memory_where_something_else_is_done_with_them) {
  const OffloadOptions all = with_gradients(to_file(100));
  EXPECT_EQ(all.gradients(), Pool::file);
  OffloadOptions part = all, delayed = all;
  part.ratio = 0.5, delayed.delay_after = 0;
  EXPECT_EQ(part.gradients(), Pool::device);
  EXPECT_EQ(delayed.gradients(), Pool::host);
  for (const OffloadOptions& options : {part, delayed}) {
    const Way way{.ranks = 2, .stage = 2, .dtype = DType::bf16, .offload = options, .micro_batches = 2};
    Way memory = way;
    memory.offload = {.delay_after = options.delay_after};
    EXPECT_EQ(train(way, {}), train(memory, {}));
  }
}

TEST_F(Offload, of_gradients_names_the_file_that_cannot_be_written) {
  const OffloadOptions offload = with_gradients(to_file(100));
  const auto failing = std::make_shared<std::atomic<bool>>(false);
  const test::ScopedSwapFault scope(
      [failing](const SwapCall& call) { return call.write && *failing ? -EIO : call.result; });
  with_training({.offload = offload}, {}, [&](Training& run) {
    *failing = true;
    EXPECT_THAT(test::message_of<IoError>([&] { run.update(0); }),
                testing::AllOf(testing::HasSubstr("rank 0"), testing::HasSubstr("gradients")));
  });
}

}  // namespace
}  // namespace nought::offload_gradients_test
