// The offload tier of parameters changes no bit of an update, wherever the optimizer's states are. What moves, and what
// each pool holds, is what the formulas say.
#include "support/message_of.h"
#include "support/offload_runs.h"
#include "support/size.h"
#include "support/sweep.h"
#include <gmock/gmock.h>

namespace nought::offload_parameters_test {
namespace {

using namespace test;

/// Each optimizer takes every third way, so that all of them are taken by some.
NOUGHT_SIZE(medium);
TEST_F(Offload, of_parameters_changes_no_bit_of_any_optimizer) {
  size_t turn = 0;
  for (const auto& [name, options] : all_optimizers())
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const int ranks : {1, 2}) {
        if (++turn % 5 % 2 == 1) continue;  // every optimizer, dtype and rank count, but not each by each
        const auto expected = train({.ranks = ranks, .stage = 3, .dtype = dtype}, options);
        const std::vector<Way> ways = ways_of_parameters(ranks, dtype);
        const size_t every = runs_everything() ? 3 : 7;
        for (size_t i = turn % every; i < ways.size(); i += every) {
          SCOPED_TRACE(fmt::format("{}, {}", name, ways[i].str()));
          EXPECT_EQ(train(ways[i], options), expected);
        }
      }
}

/// The update then starts from the parameters that lie elsewhere, and some ranks own nothing but padding.
NOUGHT_SIZE(medium);
TEST_F(Offload, of_parameters_without_masters_changes_no_bit) {
  const OptimizerOptions options{.state_dtype = DType::bf16, .master_weights = false, .seed = 3};
  int turn = 0;
  for (const int ranks : {1, 2, 4}) {
    const auto expected = train({.ranks = ranks, .stage = 3, .dtype = DType::bf16}, options);
    for (const Way& way : ways_of_parameters(ranks, DType::bf16)) {
      if (!samples(turn++, 3)) continue;
      SCOPED_TRACE(way.str());
      EXPECT_EQ(train(way, options), expected);
    }
  }
}

/// Gradients flow down and new parameters stay on the host; without states there, what the device has made flows down.
/// A file of parameters is written, and read for no update of masters. Each lease takes what the rank keeps up.
TEST_F(Offload, of_parameters_moves_each_once_in_an_update_and_once_in_a_lease) {
  const ParameterOffload host{.tier = {Pool::host}};
  for (const int ranks : {1, 2})
    for (const auto& [states, offload, guarded] : {std::tuple(to_host(100), host, true),
                                                   {OffloadOptions{}, host, true},
                                                   {to_host(100), parameters_in_file(), true},
                                                   {OffloadOptions{}, parameters_in_file(), true},
                                                   {OffloadOptions{}, parameters_in_file(), false}}) {
      const Way way{ranks, 3, DType::bf16, guarded, states, offload};
      SCOPED_TRACE(way.str());
      with_training(way, {}, [&](Training& run) {
        int64_t kept = 0;
        for (const SegmentIndex at : segments_of(run.units, true)) kept += 2 * run.residency.kept(at).size();
        const bool to_file = way.parameters.tier.pool == Pool::file, by_host = way.offload.tier.pool == Pool::host;
        // The padding of shards flows down with them.
        const int64_t gradients = by_host ? (ranks == 1 ? 2 * trained_elements(run) : kept) : 0;
        StateTraffic before = run.residency.traffic() + run.optimizer.traffic();
        run.update(0);
        StateTraffic update{.down = way.guarded && !by_host ? kept : gradients, .written = to_file ? kept : 0};
        EXPECT_EQ(run.residency.traffic() + run.optimizer.traffic() - before, update);
        before = run.residency.traffic();
        for (size_t unit = 0; unit < run.units.size(); ++unit) {
          run.residency.lease(unit);
          run.residency.release(unit);
        }
        const StateTraffic leases{.up = way.guarded ? kept : 0, .read = to_file ? kept : 0};
        EXPECT_EQ(run.residency.traffic() - before, leases);
      });
    }
}

TEST_F(Offload, of_parameters_leaves_none_on_the_device_between_leases) {
  const ParameterOffload host{.tier = {Pool::host}};
  for (const auto& [offload, guarded] :
       {std::pair(host, true), {parameters_in_file(), true}, {parameters_in_file(), false}})
    for (const int ranks : {1, 2})
      with_training(
          {ranks, 3, DType::bf16, guarded, {}, offload}, {}, [&, offload = offload, guarded = guarded](Training& run) {
            run.update(0);
            const MemoryLedger& ledger = run.context.memory->ledger();
            const auto on_device = [&] {
              run.context.stream->synchronize();  // what runs late keeps what it reads
              return ledger.current(Category::parameters);
            };
            EXPECT_EQ(on_device(), 0);
            int64_t bytes = 0;
            for (const SegmentIndex at : segments_of(run.units, true))
              bytes += round_up(2 * run.residency.kept(at).size(), offload.tier.pool == Pool::file ? kSwapGrid : 64);
            EXPECT_EQ(ledger.current(Category::parameters, offload.tier.pool), bytes);
            run.residency.lease(1);
            // What a file is read into begins at a page.
            const bool aligns = ranks == 1 && offload.tier.pool == Pool::file && !guarded;
            EXPECT_EQ(on_device(), 2 * run.residency.partition({1, 0}).padded() + (aligns ? 4096 : 0));
            run.residency.release(1);
            EXPECT_EQ(on_device(), 0);
          });
}

TEST_F(Offload, of_parameters_takes_stage_3_where_ranks_share) {
  for (const int stage : {0, 1, 2})
    EXPECT_THAT(test::message_of<ConfigError>([&] {
                  with_training({2, stage, DType::f32, false, {}, parameters_in_file()}, {}, [](Training&) {});
                }),
                testing::HasSubstr("parameters are kept in the file pool at ZeRO stage 3 alone"));
}

/// Some tiles are updated on the device beside the host's, which both write the offloaded parameters.
NOUGHT_SIZE(medium);
TEST_F(Offload, of_parameters_changes_no_bit_of_updates_that_are_shared_or_put_off) {
  const ParameterOffload host{.tier = {Pool::host}};
  int turn = 0, way_turn = 0;
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int ranks : {1, 2, 4}) {
      const auto expected = train({.ranks = ranks, .stage = 3, .dtype = dtype}, {});
      for (const bool guarded : {false, true})
        for (const ParameterOffload& offload : {host, parameters_in_file()}) {
          if (++turn % 5 < 2) continue;  // every tier, dtype and rank count, but not each by each
          OffloadOptions shared = turn / 2 % 2 == 0 ? to_host(100) : to_file(100), late = shared, early = shared;
          shared.ratio = 0.5, late.delay_after = 1, early.early = true;
          for (const OffloadOptions& states : {shared, late, early}) {
            if (!samples(way_turn++, 2)) continue;
            const Way way{ranks, 3, dtype, guarded, states, offload};
            SCOPED_TRACE(
                fmt::format("{}, put off {}, early {}", way.str(), states.delay_after.has_value(), states.early));
            EXPECT_EQ(train(way, {}), expected);
          }
        }
    }
}

}  // namespace
}  // namespace nought::offload_parameters_test
