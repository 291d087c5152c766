// What each layout holds and sends is what the formulas say.
#include <algorithm>

#include "support/training_case.h"
#include <gtest/gtest.h>

namespace nought::layout_costs_test {
namespace {

using test::sharded;
using test::TrainingCase;
using test::TrainingRank;

TrainingCase on(int ranks, int stage) {
  TrainingCase each = test::learning(test::small_model("grouped_heads", 3), sharded(ranks, stage));
  each.rows.of_step = 8, each.rows.length = 16;
  return each;
}

/// Psi padded to equal shards, Unit by Unit: what the partition really lays out.
int64_t padded_parameters(const Model& model, int ranks) {
  int64_t padded = 0;
  for (const auto& unit : model.units()) padded += Partition(unit->segments()[0].size, ranks).padded();
  return padded;
}

/// What this rank has sent in the step.
Traffic sent_in(TrainingRank& rank, int64_t step) {
  const Traffic before = rank.world.traffic();
  rank.step(step);
  Traffic sent = rank.world.traffic();
  for (size_t c = 0; c < kNumCollectives; ++c) {
    sent.counts[c].elements -= before.counts[c].elements;
    sent.counts[c].calls -= before.counts[c].calls;
  }
  return sent;
}

TEST(Memory, model_states_take_what_the_formulas_say) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int ranks : {1, 2, 4})
      for (const int stage : {0, 1, 2, 3})
        on(ranks, stage).in(dtype).on_ranks([&](TrainingRank& rank) {
          rank.model.settle();
          const MemoryLedger& ledger = rank.context.memory->ledger();
          const int64_t psi = padded_parameters(rank.decoder, ranks), element = size_of(dtype);
          EXPECT_LE(psi - rank.decoder.parameter_count(),
                    static_cast<int64_t>(rank.decoder.units().size()) * ranks * Partition::kAlignment);
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
    TrainingCase each = on(ranks, 1).in(DType::bf16);
    each.guarded = true;
    const auto peaks = [&] {
      return each.on_rank(0, [](TrainingRank& rank) {
        MemoryLedger& ledger = rank.context.memory->ledger();
        rank.context.stream->synchronize();  // what was loaded has left the host
        ledger.reset_peaks();
        rank.step(0), rank.step(1);
        rank.model.settle();
        return std::array{ledger.peak_total(), ledger.peak(Category::optimizer),  // of the device,
                          ledger.peak(Category::optimizer, Pool::host)};          // and on the host
      });
    };
    const auto [all, states, none] = peaks();
    each.settings.offload_optimizer = {.tier = {Pool::host}, .sub_group = 100'000};
    const auto [device, left, host] = peaks();
    EXPECT_EQ(none, 0);
    EXPECT_EQ(device, all - states) << ranks;
    EXPECT_EQ(left, 0);
    EXPECT_LE(host, states);  // without the padding of shards
    EXPECT_GE(host, states - 12 * 1024);
  }
}

TEST(Memory, sharded_gradients_and_parameters_are_whole_for_two_units_at_most) {
  on(2, 3).on_ranks([&](TrainingRank& rank) {
    int64_t largest = 0;
    for (const auto& unit : rank.decoder.units())
      largest = std::max(largest, Partition(unit->segments()[0].size, 2).padded() * 4);
    rank.step(0);
    rank.model.settle();
    const MemoryLedger& ledger = rank.context.memory->ledger();
    const int64_t shards = padded_parameters(rank.decoder, 2) * 4 / 2;
    EXPECT_LE(ledger.peak(Category::parameters), shards + 2 * largest);
    EXPECT_LE(ledger.peak(Category::gradients), shards + 2 * largest);
  });
}

TEST(Traffic, a_step_sends_two_or_three_times_the_parameters) {
  for (const int ranks : {1, 2, 4})
    for (const int stage : {0, 1, 2, 3}) {
      SCOPED_TRACE(sharded(ranks, stage).str());
      on(ranks, stage).on_ranks([&](TrainingRank& rank) {
        rank.step(0);
        const Traffic sent = sent_in(rank, 1);
        const int64_t once = padded_parameters(rank.decoder, ranks) * (ranks - 1) / ranks;
        EXPECT_EQ(sent[Collective::reduce_scatter].elements, once);
        EXPECT_EQ(sent[Collective::all_gather].elements, stage == 3 ? 2 * once : once);
        // All that is left are the loss, the norm, one value for each Unit, and whether a rank wants to stop.
        const auto values = static_cast<int64_t>(rank.decoder.units().size()) + 2;
        EXPECT_LE(sent.total_elements() - (stage == 3 ? 3 : 2) * once, 2 * values + ranks);
      });
    }
}

TEST(Traffic, buckets_send_the_same_in_fewer_collectives) {
  for (const int stage : {0, 1, 2, 3}) {
    const auto step_of = [&](int64_t bucket) {
      TrainingCase each = on(2, stage);
      each.settings.reduce_bucket = each.settings.gather_bucket = bucket;
      return each.on_rank(0, [](TrainingRank& rank) { return sent_in(rank, 0); });
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
    TrainingCase each = on(2, stage);
    each.accumulation = 2;
    each.on_ranks([&](TrainingRank& rank) {
      EXPECT_EQ(sent_in(rank, 0)[Collective::reduce_scatter].elements,
                padded_parameters(rank.decoder, 2) / 2 * (stage >= 2 ? 2 : 1))
          << stage;
    });
  }
}

}  // namespace
}  // namespace nought::layout_costs_test
