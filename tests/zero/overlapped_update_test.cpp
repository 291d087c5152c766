// Updates overlapped with the passes of a step, and of the next one, have the bits of updates between steps, and
// gradients flow to the host as they become final.
#include "support/message_of.h"
#include "support/offload_runs.h"
#include "support/size.h"
#include "support/sweep.h"
#include <gmock/gmock.h>

namespace nought::overlapped_update_test {
namespace {

using namespace test;

/// The gradients here do not depend on the parameters.
NOUGHT_SIZE(medium);
TEST_F(Offload, what_is_put_off_by_one_step_is_the_same_update_when_it_is_complete) {
  const auto delayed = [](OffloadOptions options, int64_t after) {
    options.delay_after = after;
    return options;
  };
  int turn = 0, way_turn = 0;
  for (const auto& [name, options] : all_optimizers()) {
    if (gives_direction(options.method)) continue;
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const int ranks : {1, 2, 4}) {
        const int stage = ranks == 1 ? 0 : turn % 4;
        if (++turn % 5 < 3) continue;  // every optimizer, dtype, rank count and stage, but not each by each
        const auto expected = train({.ranks = ranks, .stage = stage, .dtype = dtype}, options);
        const int64_t after = turn / 5 % 2;
        for (const bool guarded : {false, true})
          for (const OffloadOptions& offload :
               {guarded ? to_host(77) : OffloadOptions{}, turn % 3 == 0   ? to_file(100)
                                                          : turn % 3 == 1 ? to_file(5000, 4)
                                                                          : OffloadOptions{}}) {
            if (!samples(way_turn++, 3)) continue;
            const Way way{ranks, stage, dtype, guarded, delayed(offload, after)};
            SCOPED_TRACE(fmt::format("{}, {}, after {}", name, way.str(), after));
            EXPECT_EQ(train(way, options), expected);
          }
      }
  }
}

NOUGHT_SIZE(medium);
TEST_F(Offload, parameters_without_masters_are_put_off_with_the_same_random_rounding) {
  OptimizerOptions options{.state_dtype = DType::bf16, .master_weights = false, .seed = 3};
  const auto expected = train({.ranks = 2, .stage = 1, .dtype = DType::bf16}, options);
  for (const bool guarded : {false, true})
    for (OffloadOptions offload : {OffloadOptions{}, to_host(77), to_file(77)}) {
      offload.delay_after = 1;
      const Way way{2, 1, DType::bf16, guarded, offload};
      SCOPED_TRACE(way.str());
      EXPECT_EQ(train(way, options), expected);
    }
}

TEST_F(Offload, exactly_one_update_is_pending_and_its_parameters_are_seen_when_it_is_complete) {
  for (OffloadOptions offload : {OffloadOptions{}, to_host(100), to_file(100)}) {
    std::vector<std::map<std::string, std::vector<float>>> ordinary;
    with_training({.dtype = DType::bf16}, {}, [&](Training& run) {
      for (int step = 0; step < 4; ++step) run.update(step), ordinary.push_back(run.all());
    });
    offload.delay_after = 2;
    with_training({1, 0, DType::bf16, offload.tier.pool == Pool::host, offload}, {}, [&](Training& run) {
      const auto parameters = [&](const std::map<std::string, std::vector<float>>& all) {
        return std::vector{all.at("embedding"), all.at("block.0"), all.at("block.1")};
      };
      for (int step = 0; step < 4; ++step) {
        run.update(step);
        EXPECT_EQ(run.optimizer.updates(), step + 1);
        EXPECT_EQ(run.optimizer.pending().has_value(), step >= 2);
        const int visible = step < 2 ? step : step - 1;
        std::map<std::string, std::vector<float>> seen;
        for (size_t unit = 0; unit < run.units.size(); ++unit) {
          run.residency.lease(unit);
          seen[run.units[unit]->name()] = run.context.to_host<float>(run.residency.whole({unit, 0}));
          run.residency.release(unit);
        }
        EXPECT_EQ(parameters(seen), parameters(ordinary[static_cast<size_t>(visible)])) << step;
      }
      run.drain();
      EXPECT_FALSE(run.optimizer.pending());
      EXPECT_FALSE(run.optimizer.complete());
      EXPECT_EQ(run.all(), ordinary.back());
    });
  }
}

TEST_F(Offload, updates_for_which_ranks_talk_to_each_other_are_not_put_off) {
  for (const Method& method : {Method(LambOptions{}), Method(MuonOptions{}), Method(OneBitAdamOptions{})})
    EXPECT_THAT(test::message_of<ConfigError>(
                    [&] { with_training({.offload = {.delay_after = 0}}, {.method = method}, [](Training&) {}); }),
                testing::HasSubstr("for which ranks talk to each other"));
}

NOUGHT_SIZE(medium);
TEST_F(Offload, changes_no_bit_of_segments_that_are_updated_as_their_gradients_become_final) {
  const auto early = [](OffloadOptions options) {
    options.early = true;
    return options;
  };
  int turn = 0, way_turn = 0;
  for (const auto& [name, options] : all_optimizers())
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const int ranks : {1, 2, 4}) {
        const int stage = ranks == 1 ? 0 : turn % 4;
        if (++turn % 5 < 3) continue;  // every optimizer, dtype, rank count and stage, but not each by each
        const auto expected = train({.ranks = ranks, .stage = stage, .dtype = dtype}, options);
        for (const Way& way : {Way{ranks, stage, dtype, true, early(to_host(77))},
                               Way{ranks, stage, dtype, turn % 2 == 0, early(to_file(100))},
                               Way{ranks, stage, dtype, turn % 2 == 1, early(to_file(5000, 4))}}) {
          if (!samples(way_turn++, 2)) continue;
          SCOPED_TRACE(fmt::format("{}, {}", name, way.str()));
          EXPECT_EQ(train(way, options), expected);
        }
      }
}

/// Steps are as they were guessed, clipped, or skipped: not one of them is seen in what comes after.
NOUGHT_SIZE(medium);
TEST_F(Offload, guesses_that_are_undone_change_no_bit) {
  const auto guessing = [](OffloadOptions options) {
    options.early = options.undo = true;
    return options;
  };
  const std::vector<std::vector<double>> kinds{{1, 1, 1}, {0.25, 1, 0.5}, {0.25, 0.5, 0.75}, {0, 1, 0}, {0.5, 0, 1}};
  int turn = 0, way_turn = 0;
  for (auto [name, options] : all_optimizers())
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
      for (const int ranks : {1, 2, 4}) {
        if (++turn % 3 != 0) continue;  // every optimizer, dtype, rank count, stage and kind, but not each by each
        options.master_weights = turn % 2 == 0 || options.state_block > 0;
        Way way{.ranks = ranks, .stage = ranks == 1 ? 0 : turn % 4, .dtype = dtype};
        way.factors = kinds[static_cast<size_t>(turn) / 3 % kinds.size()];
        const auto expected = train(way, options);
        for (const auto& [guarded, offload] :
             {std::pair(true, to_host(77)), {turn % 2 == 0, to_file(100)}, {false, to_file(5000, 4)}, {false, {}}}) {
          if (!samples(way_turn++, 3)) continue;
          way.guarded = guarded, way.offload = guessing(offload);
          SCOPED_TRACE(fmt::format("{}, {}, factors {}", name, way.str(), fmt::join(way.factors, " ")));
          EXPECT_EQ(train(way, options), expected);
        }
      }
}

TEST_F(Offload, what_is_undone_was_updated_before) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (OffloadOptions offload : {to_host(100), to_file(100), OffloadOptions{}}) {
      offload.early = offload.undo = true;
      with_training({1, 0, dtype, offload.tier.pool == Pool::host, offload}, {}, [&](Training& run) {
        const auto before = run.all();
        run.optimizer.begin_early({kLr, 0.5});
        run.form_gradients(0);
        run.optimizer.lane().update_early();
        run.optimizer.lane().await_early();
        EXPECT_NE(run.context.to_host<float>(run.residency.read({0, 0}, {0, 37 * 12})), before.at("embedding"));
        EXPECT_FALSE(run.optimizer.abandon_early()) << "nothing stays changed";
        EXPECT_EQ(run.all(), before);
      });
    }
}

/// Behind the first Unit that makes the guess wrong nothing is written any more.
TEST_F(Offload, a_guess_that_is_seen_to_be_wrong_ends) {
  OffloadOptions offload = to_file(100);
  offload.early = offload.undo = true;
  const auto written = [&](double max_norm) {
    int64_t bytes = 0;
    with_training({.offload = offload}, {}, [&](Training& run) {
      const int64_t before = run.optimizer.traffic().written;
      run.optimizer.begin_early({kLr, 0.5, max_norm});
      run.form_gradients(0);
      run.optimizer.abandon_early();
      bytes = run.optimizer.traffic().written - before;
    });
    return bytes;
  };
  EXPECT_EQ(written(1e6), written(0));
  EXPECT_LT(written(1e-6), written(0) / 2);
}

/// The sum over replicas stands before it, and nothing else.
NOUGHT_SIZE(medium);
TEST_F(Offload, changes_no_bit_of_early_updates_of_replicas) {
  int turn = 0;
  for (const int stage : {0, 1, 2, 3})
    for (const int ranks : {2, 4})
      for (const DType wire : {DType::bf16, DType::f32}) {
        if (!samples(turn++, 3)) continue;
        Way way{.ranks = ranks, .stage = stage, .dtype = DType::bf16, .wire = wire, .micro_batches = 2, .replicas = 2};
        const auto expected = train(way, {});
        way.guarded = turn % 2 == 0, way.offload = way.guarded ? to_host(100) : to_file(100);
        way.offload.early = true;
        SCOPED_TRACE(way.str());
        EXPECT_EQ(train(way, {}), expected);
        with_training(way, {}, [](Training& run) {
          run.optimizer.begin_early({kLr, 0.5});
          run.form_gradients(0);
          run.reducer.finish_step();
          run.context.stream->synchronize();
          run.optimizer.lane().update_early();
          EXPECT_TRUE(run.optimizer.abandon_early()) << "all are final";
        });
      }
}

TEST_F(Offload, segments_are_updated_before_the_update_and_none_behind_a_gradient_that_is_not_finite) {
  for (OffloadOptions offload : {to_host(100), to_file(100)}) {
    offload.early = true;
    with_training({1, 0, DType::bf16, offload.tier.pool == Pool::host, offload}, {}, [&](Training& run) {
      const auto states = [&] {
        auto all = run.all();
        for (const auto& unit : run.units) all.erase(unit->name());
        return all;
      };
      const auto before = states();
      run.optimizer.begin_early({kLr, 0.5});
      run.form_gradients(0, /*bad=*/1);
      EXPECT_TRUE(run.optimizer.abandon_early());
      EXPECT_EQ(run.optimizer.updates(), 0);
      size_t changed = 0;
      for (const auto& [name, values] : states()) {
        const bool first = name.find("embed") != std::string::npos;
        const bool same = values == before.at(name);
        changed += !same;
        if (name.find("block.1") != std::string::npos) {
          EXPECT_TRUE(same) << name << " comes behind the one that is not finite";
        }
        if (first) {
          EXPECT_FALSE(same) << name;
        }
      }
      EXPECT_GE(changed, 3u);
      EXPECT_FALSE(run.optimizer.abandon_early()) << "nothing is under way";
    });
  }
}

NOUGHT_SIZE(medium);
TEST_F(Offload, sums_of_gradients_on_the_host_have_the_same_bits_over_micro_batches_and_wires) {
  for (const DType wire : {DType::bf16, DType::f32})
    for (const int stage : {2, 3})
      for (const bool early : {false, true}) {
        Way way{.ranks = 2, .stage = stage, .dtype = DType::bf16, .wire = wire, .micro_batches = 3};
        const auto expected = train(way, {});
        way.guarded = true, way.offload = to_host(100), way.offload.early = early;
        SCOPED_TRACE(way.str());
        EXPECT_EQ(train(way, {}), expected);
        way.offload.delay_after = 1;
        EXPECT_EQ(train(way, {}), expected);
      }
}

/// Whole gradients of two Units and the sums of four, which are the parts of the formula.
NOUGHT_SIZE(medium);
TEST_F(Offload, a_device_beside_the_host_holds_gradients_in_flight_to_the_byte) {
  for (const int stage : {2, 3})
    for (const int micro_batches : {1, 3})
      for (const bool in_file : {false, true}) {
        Way way{.ranks = 2,
                .stage = stage,
                .dtype = DType::bf16,
                .guarded = true,
                .micro_batches = micro_batches,
                .drains = true};
        way.offload = in_file ? with_gradients(to_file(100)) : to_host(100);
        SCOPED_TRACE(fmt::format("{}, {} micro-batches", way.str(), micro_batches));
        with_training(way, {}, [&](Training& run) {
          run.update(0);
          MemoryLedger& ledger = run.context.memory->ledger();
          ledger.reset_peaks();
          run.update(1);
          std::vector<int64_t> wholes, sums;  // by pass
          for (int i = 0; i < micro_batches; ++i)
            for (const SegmentIndex at : segments_of(run.units, /*trainable=*/true)) {
              wholes.push_back(round_up(2 * run.residency.partition(at).padded(), 64));
              sums.push_back(round_up(2 * run.residency.partition(at).shard(), 64));
            }
          int64_t peak = 0;
          for (size_t pass = 0; pass < wholes.size(); ++pass) {
            int64_t held = 0;
            for (size_t back = 0; back <= std::min<size_t>(pass, 1); ++back) held += wholes[pass - back];
            for (size_t back = 0; back <= std::min<size_t>(pass, 3); ++back) held += sums[pass - back];
            peak = std::max(peak, held);
          }
          int64_t parameters = 0;
          for (const SegmentIndex at : segments_of(run.units, /*trainable=*/true))
            parameters += round_up(2 * run.residency.kept(at).size(), 64);
          EXPECT_EQ(ledger.peak(Category::parameters), parameters);
          EXPECT_EQ(ledger.peak(Category::optimizer), 0);
          EXPECT_EQ(ledger.peak(Category::gradients), peak);
        });
      }
}

NOUGHT_SIZE(medium);
TEST_F(Offload, a_device_beside_the_host_keeps_no_sum_of_sharded_gradients) {
  for (const int stage : {1, 2, 3})
    with_training({2, stage, DType::bf16, true, to_host(100)}, {}, [&](Training& run) {
      run.update(0);
      const MemoryLedger& ledger = run.context.memory->ledger();
      int64_t shards = 0, whole = 0, most = 0;
      for (const SegmentIndex at : segments_of(run.units, /*trainable=*/true)) {
        shards += round_up(2 * run.residency.partition(at).shard(), 64);
        whole += round_up(2 * run.residency.partition(at).padded(), 64);
        most = std::max(most, round_up(2 * run.residency.partition(at).padded(), 64));
      }
      run.context.stream->synchronize();
      // Whole gradients of two Units, and sums of theirs and of two more that are on their way down.
      if (stage > 1) {
        EXPECT_LE(ledger.peak(Category::gradients), 2 * most + 4 * (most / 2 + 64));
      }
      EXPECT_EQ(ledger.current(Category::gradients), stage == 1 ? whole : 0);
      EXPECT_EQ(ledger.current(Category::gradients, Pool::host), stage == 1 ? 0 : shards);
    });
}

}  // namespace
}  // namespace nought::overlapped_update_test
