// What each layout holds and sends is what the formulas say.
#include <algorithm>

#include "support/layout_runs.h"
#include <gtest/gtest.h>

namespace nought::layout_costs_test {
namespace {

using test::Layout;
using test::take_step;
using test::with_model;

/// Psi padded to equal shards, Unit by Unit: what the partition really lays out.
int64_t padded_parameters(const Model& model, int ranks) {
  int64_t padded = 0;
  for (const auto& unit : model.units()) padded += Partition(unit->segments()[0].size, ranks).padded();
  return padded;
}

TEST(Memory, model_states_take_what_the_formulas_say) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int ranks : {1, 2, 4})
      for (const int stage : {0, 1, 2, 3})
        with_model({.ranks = ranks, .stage = stage, .dtype = dtype}, [&](ShardedModel& model, Engine&) {
          model.settle();
          const MemoryLedger& ledger = model.context().memory->ledger();
          const int64_t psi = padded_parameters(model.model(), ranks), element = size_of(dtype);
          EXPECT_LE(psi - model.model().parameter_count(),
                    static_cast<int64_t>(model.model().units().size()) * ranks * Partition::kAlignment);
          // 16-bit training keeps 12 bytes of fp32 master and moments per parameter; f32 is its own master.
          const int64_t states = dtype == DType::f32 ? 8 : 12;
          const auto shard = [&](int from_stage) { return stage >= from_stage ? psi / ranks : psi; };
          EXPECT_EQ(ledger.current(Category::optimizer), states * shard(1)) << stage;
          EXPECT_EQ(ledger.current(Category::gradients), element * shard(2)) << stage;
          EXPECT_EQ(ledger.current(Category::parameters), element * shard(3)) << stage;
        });
}

/// Nothing but the states leaves the device at stage 1, and nothing comes in their place: to the byte.
TEST(Memory, the_peak_of_a_device_falls_by_the_states_that_the_host_holds) {
  for (const int ranks : {1, 2}) {
    Layout layout{.ranks = ranks, .stage = 1, .dtype = DType::bf16, .rows = 8};
    layout.guarded = true;
    const auto peaks = [&] {
      std::array<int64_t, 3> found{};  // of the device; of the optimizer there, and on the host
      with_model(layout, [&](ShardedModel& model, Engine& engine) {
        MemoryLedger& ledger = model.context().memory->ledger();
        model.context().stream->synchronize();  // what was loaded has left the host
        ledger.reset_peaks();
        for (int step = 0; step < 2; ++step) take_step(layout, model, engine, step);
        model.settle();
        if (model.mesh().world().rank() == 0)
          found = {ledger.peak_total(), ledger.peak(Category::optimizer), ledger.peak(Category::optimizer, Pool::host)};
      });
      return found;
    };
    const auto [all, states, none] = peaks();
    layout.offload = {.home = Pool::host, .sub_group = 100'000};
    const auto [device, left, host] = peaks();
    EXPECT_EQ(none, 0);
    EXPECT_EQ(device, all - states) << ranks;
    EXPECT_EQ(left, 0);
    EXPECT_LE(host, states);  // without the padding of shards
    EXPECT_GE(host, states - 12 * 1024);
  }
}

TEST(Memory, sharded_gradients_and_parameters_are_whole_for_two_units_at_most) {
  with_model({.ranks = 2, .stage = 3}, [&](ShardedModel& model, Engine& engine) {
    int64_t largest = 0;
    for (const auto& unit : model.model().units())
      largest = std::max(largest, Partition(unit->segments()[0].size, 2).padded() * 4);
    take_step({.ranks = 2, .stage = 3}, model, engine, 0);
    model.settle();
    const MemoryLedger& ledger = model.context().memory->ledger();
    const int64_t shards = padded_parameters(model.model(), 2) * 4 / 2;
    EXPECT_LE(ledger.peak(Category::parameters), shards + 2 * largest);
    EXPECT_LE(ledger.peak(Category::gradients), shards + 2 * largest);
  });
}

TEST(Traffic, a_step_sends_two_or_three_times_the_parameters) {
  for (const int ranks : {1, 2, 4})
    for (const int stage : {0, 1, 2, 3}) {
      const Layout layout{.ranks = ranks, .stage = stage};
      SCOPED_TRACE(layout.str());
      with_model(layout, [&](ShardedModel& model, Engine& engine) {
        take_step(layout, model, engine, 0);
        const Traffic before = model.mesh().world().traffic();
        take_step(layout, model, engine, 1);
        const Traffic after = model.mesh().world().traffic();
        const auto sent = [&](Collective collective) {
          return after[collective].elements - before[collective].elements;
        };
        const int64_t once = padded_parameters(model.model(), ranks) * (ranks - 1) / ranks;
        EXPECT_EQ(sent(Collective::reduce_scatter), once);
        EXPECT_EQ(sent(Collective::all_gather), stage == 3 ? 2 * once : once);
        // All that is left are the loss, the norm, one value for each Unit, and whether a rank wants to stop.
        const auto values = static_cast<int64_t>(model.model().units().size()) + 2;
        EXPECT_LE(after.total_elements() - before.total_elements() - (stage == 3 ? 3 : 2) * once, 2 * values + ranks);
      });
    }
}

TEST(Traffic, buckets_send_the_same_in_fewer_collectives) {
  for (const int stage : {0, 1, 2, 3}) {
    const auto step_of = [&](int64_t bucket) {
      const Layout layout{.ranks = 2, .stage = stage, .bucket = bucket};
      Traffic traffic;
      with_model(layout, [&](ShardedModel& model, Engine& engine) {
        const Traffic before = model.mesh().world().traffic();
        take_step(layout, model, engine, 0);
        if (model.mesh().world().rank() != 0) return;
        traffic = model.mesh().world().traffic();
        for (size_t c = 0; c < kNumCollectives; ++c) {
          traffic.counts[c].elements -= before.counts[c].elements;
          traffic.counts[c].calls -= before.counts[c].calls;
        }
      });
      return traffic;
    };
    const Traffic alone = step_of(0), all = step_of(1'000'000);
    EXPECT_EQ(all.total_elements(), alone.total_elements());
    EXPECT_EQ(alone[Collective::reduce_scatter].calls, 5);  // embedding, three blocks, head
    EXPECT_EQ(all[Collective::reduce_scatter].calls, 1);
    if (stage < 3) {
      EXPECT_EQ(all[Collective::all_gather].calls, 1);
    }
  }
}

TEST(Traffic, accumulation_reduces_once_without_gradient_sharding_and_every_time_with_it) {
  for (const int stage : {0, 1, 2, 3}) {
    const Layout layout{.ranks = 2, .stage = stage, .accumulation = 2};
    with_model(layout, [&](ShardedModel& model, Engine& engine) {
      const Traffic before = model.mesh().world().traffic();
      take_step(layout, model, engine, 0);
      const int64_t sent = model.mesh().world().traffic()[Collective::reduce_scatter].elements -
                           before[Collective::reduce_scatter].elements;
      EXPECT_EQ(sent, padded_parameters(model.model(), 2) / 2 * (stage >= 2 ? 2 : 1)) << stage;
    });
  }
}

}  // namespace
}  // namespace nought::layout_costs_test
