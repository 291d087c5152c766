// Frozen parameters take no gradient, master, state or reduction.
#include "support/frozen_runs.h"
#include <gtest/gtest.h>

namespace nought::frozen_costs_test {
namespace {

using namespace test::frozen;

/// Elements of all segments, padded to equal shards: those that are trained, or the others; of Units from `first` on.
int64_t padded(const Model& model, int ranks, bool trained, size_t first = 0) {
  int64_t sum = 0;
  for (size_t unit = first; unit < model.units().size(); ++unit)
    for (const Segment& segment : model.units()[unit]->segments())
      if (segment.trainable == trained) sum += Partition(segment.size, ranks).padded();
  return sum;
}

TEST(FrozenMemory, is_what_the_formulas_say_to_the_byte) {
  for (Layout layout : frozen_layouts())
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const int ranks : {1, 2, 3})
        for (const int stage : {0, 1, 2, 3}) {
          layout.dtype = dtype, layout.ranks = ranks, layout.stage = stage;
          SCOPED_TRACE(layout.str());
          with_model(layout, [&](ShardedModel& model, Engine& engine) {
            take_step(layout, model, engine, 0);
            model.settle();
            const MemoryLedger& ledger = model.context().memory->ledger();
            const int64_t trained = padded(model.model(), ranks, true), frozen = padded(model.model(), ranks, false);
            const auto share = [&](int64_t elements, int from) { return stage >= from ? elements / ranks : elements; };
            const int64_t element = size_of(dtype), master = dtype == DType::f32 ? 0 : 4;
            int64_t updated = 0;  // a shard that is nothing but padding has no moments
            for (const SegmentIndex at : segments_of(model.model().units(), true)) {
              const Partition partition(model.model().units()[at.unit]->segments()[at.segment].size, ranks);
              const bool empty = partition.owned(model.mesh().world().rank()).begin >= partition.size();
              updated += stage == 0 ? partition.padded() : empty ? 0 : partition.shard();
            }
            EXPECT_EQ(ledger.current(Category::parameters), element * share(trained + frozen, 3));
            EXPECT_EQ(ledger.current(Category::gradients), element * share(trained, 2));
            EXPECT_EQ(ledger.current(Category::optimizer), master * share(trained, 1) + 8 * updated);
          });
        }
}

TEST(FrozenTraffic, is_what_the_formulas_say_to_the_element) {
  for (Layout layout : frozen_layouts())
    for (const int ranks : {1, 2, 3})
      for (const int stage : {0, 1, 2, 3})
        for (const bool overlap : {false, true}) {
          layout.ranks = ranks, layout.stage = stage, layout.overlap = overlap;
          SCOPED_TRACE(layout.str());
          with_model(layout, [&](ShardedModel& model, Engine& engine) {
            take_step(layout, model, engine, 0);
            const Traffic before = model.mesh().world().traffic();
            take_step(layout, model, engine, 1);
            const Traffic after = model.mesh().world().traffic();
            const auto sent = [&](Collective collective) {
              return after[collective].elements - before[collective].elements;
            };
            const auto& units = model.model().units();
            const auto once = [&](int64_t elements) { return elements * (ranks - 1) / ranks; };
            const auto all_from = [&](size_t first) {
              return padded(model.model(), ranks, true, first) + padded(model.model(), ranks, false, first);
            };
            size_t lowest = 0;
            while (!units[lowest]->trained()) ++lowest;
            const int64_t trained = once(padded(model.model(), ranks, true));
            EXPECT_EQ(sent(Collective::reduce_scatter), trained);
            // At stage 3 all Units are gathered forward, and back those that the walk comes to; a tied head gathers
            // the embedding once more each way.
            const int64_t tied = layout.config.tie_word_embeddings ? 2 * once(all_from(0) - all_from(1)) : 0;
            EXPECT_EQ(sent(Collective::all_gather), stage == 3 ? once(all_from(0) + all_from(lowest)) + tied : trained);
          });
        }
}

/// Below the lowest trained Unit nothing is kept for the backward pass.
TEST(FrozenMemory, activations_of_what_is_not_walked_back_are_not_kept) {
  const auto peak = [](const Freezing& freezing) {
    int64_t bytes = 0;
    const Layout layout{.freezing = freezing};
    with_model(layout, [&](ShardedModel& model, Engine& engine) {
      take_step(layout, model, engine, 0);
      bytes = model.context().memory->ledger().peak(Category::activations);
    });
    return bytes;
  };
  EXPECT_LT(peak(kHeadOnly), peak({}) / 3);
  EXPECT_LT(peak(kBottom), peak({}));
}

}  // namespace
}  // namespace nought::frozen_costs_test
