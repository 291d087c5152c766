// ShardedModel turns the events of a walk over Units into leases, prefetches and reductions.
#include "nought/zero/sharded_model.h"

#include <chrono>
#include <numeric>
#include <thread>

#include "support/message_of.h"
#include "support/small_units.h"
#include "support/swap_fault.h"
#include "support/temp_folder.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/comm/thread.h"
#include "nought/zero/micro_batch.h"

namespace nought::sharded_model_test {
namespace {

using testing::ElementsAre;

const Batch kNoBatch;

/// Three Units; the last borrows the first, as a head does with a tied embedding. It has no loss: tests walk by hand.
class ThreeUnits final : public Model {
 public:
  ThreeUnits() {
    add_unit("first").add("first.weight", {37, 3}, Init::normal(0.5));
    add_unit("second").add("second.weight", {7, 9}, Init::normal(0.5));
    Unit& third = add_unit("third");
    third.add("third.scale", {1}, Init::ones());
    third.borrow(*units()[0]);
  }
  Var loss(Tape&, const Batch&, double) override { fail<Error>("nobody asks for it"); }
};

/// The elements that it is asked for; every value is the parameter's first letter's code plus its index.
struct CountingSource final : StateSource {
  void fill(StateKind, const Parameter& parameter, std::span<const Interval> elements,
            const Tensor& destination) const override {
    for_each_interval(elements, destination, [&](Interval interval, const Tensor& values) {
      asked += interval.size();
      visit_float(values.dtype(), [&](auto tag) {
        using T = typename decltype(tag)::type;
        for (int64_t i = 0; i < interval.size(); ++i)
          values.data<T>()[i] = T(static_cast<float>(parameter.name[0] + interval.begin + i));
      });
    });
  }
  mutable int64_t asked = 0;
};

void for_each_stage(int ranks, const std::function<void(int, Communicator&, const Context&)>& body) {
  for (const int stage : {0, 1, 2, 3}) {
    SCOPED_TRACE(fmt::format("stage {}", stage));
    run_ranks(ranks, [&](Communicator& group, const Context& context) { body(stage, group, context); });
  }
}

TEST(ShardedModel, a_rank_loads_what_it_keeps_and_all_see_the_whole) {
  const test::TempFolder folder;
  for (const bool training : {true, false})
    for_each_stage(2, [&](int stage, Communicator& group, const Context& context) {
      for (const Pool pool : {Pool::device, Pool::file}) {
        if (pool == Pool::file && stage < 3) continue;
        ThreeUnits units;
        ShardedModel model(context, group, units,
                           {.policy = Policy::stage(stage),
                            .training = training,
                            .offload_param = {.tier = {pool, folder.path().string()}}});
        const CountingSource source;
        model.load(source);
        if (!training) {  // parameters alone, no states
          EXPECT_EQ(stage == 3, source.asked < units.parameter_count());
        }
        for (size_t unit = 0; unit < 3; ++unit)
          model.with_parameters(unit, [&](const Parameter& parameter, const Tensor& whole) {
            ASSERT_EQ(whole.shape(), parameter.shape);
            const char letter = units.units()[unit]->name()[0];
            for (int64_t i = 0; i < whole.numel(); ++i)
              ASSERT_EQ(whole.data<float>()[i], static_cast<float>(letter + i));
          });
      }
    });
}

TEST(ShardedModel, refuses_offloaded_parameters_below_stage_3_on_one_rank_too) {
  const auto self = make_self_communicator();
  for (const Pool pool : {Pool::host, Pool::file}) {
    ThreeUnits units;
    EXPECT_THAT(test::message_of<ConfigError>([&] {
                  const ShardedModel model(Context::reference(), *self, units,
                                           {.policy = Policy::stage(2), .offload_param = {.tier = {pool}}});
                }),
                testing::HasSubstr("at ZeRO stage 3 alone"));
  }
}

/// While a Unit computes, the next one is gathered and the one behind it is read; without several ranks there is
/// nothing to gather, and both are read.
TEST(ShardedModel, files_are_read_ahead_of_what_is_gathered) {
  const test::TempFolder folder;
  for (const int ranks : {1, 2})
    for (const bool overlap : {true, false})
      run_ranks(ranks, [&](Communicator& group, const Context& context) {
        ThreeUnits units;
        ShardedModel model(context, group, units,
                           {.policy = Policy::stage(3),
                            .overlap = overlap,
                            .offload_param = {.tier = {Pool::file, folder.path().string()}, .buffers = 2}});
        model.load(InitialState(1));
        const auto elements = [&](size_t unit) { return model.residency().kept({unit, 0}).size(); };
        const auto reads = [&, before = model.traffic().read] { return (model.traffic().read - before) / 4; };
        const auto gathers = [&, before = group.traffic()[Collective::all_gather].calls] {
          return group.traffic()[Collective::all_gather].calls - before;
        };
        Unit& first = *units.units()[0];
        model.before_forward(first);
        EXPECT_EQ(reads(), elements(0) + (overlap ? elements(1) + elements(2) : 0));
        EXPECT_EQ(gathers(), ranks == 1 ? 0 : overlap ? 2 : 1);
        EXPECT_EQ(model.traffic().written, 4 * (elements(0) + elements(1) + elements(2))) << "when it was loaded";
        model.after_forward(first);
        model.settle();
      });
}

TEST(ShardedModel, counts_how_long_a_pass_waits_for_parameters_in_files) {
  const test::TempFolder folder;
  const auto late = [](const SwapCall& call) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return call.result;
  };
  const test::ScopedSwapFault scope(late);
  for (const int ranks : {1, 2})
    run_ranks(ranks, [&](Communicator& group, const Context& context) {
      ThreeUnits units;
      ShardedModel model(context, group, units,
                         {.policy = Policy::stage(3), .offload_param = {.tier = {Pool::file, folder.path().string()}}});
      model.load(InitialState(1));
      model.settle();
      const StateTimes before = model.times();
      model.before_forward(*units.units()[0]);
      const StateTimes times = model.times() - before;
      EXPECT_GE(times.on_way, 0.02);
      EXPECT_GE(times.waited, 0.01) << "it begins a moment after the read does";
      EXPECT_EQ(model.optimizer().times().on_way, 0) << "its states are in memory";
      model.after_forward(*units.units()[0]);
      model.settle();
    });
}

TEST(ShardedModel, a_pass_leases_its_unit_and_the_borrowed_one_and_prefetches_the_next) {
  run_ranks(2, [](Communicator& group, const Context& context) {
    for (const bool overlap : {true, false}) {
      ThreeUnits units;
      ShardedModel model(context, group, units, {.policy = Policy::stage(3), .overlap = overlap});
      model.load(InitialState(1));
      const int64_t before = group.traffic()[Collective::all_gather].calls;
      const auto gathers = [&] { return group.traffic()[Collective::all_gather].calls - before; };
      const auto unit = [&](size_t i) -> Unit& { return *units.units()[i]; };
      EXPECT_THROW(model.values(unit(0), 0), Error);
      model.before_forward(unit(0));
      EXPECT_EQ(gathers(), overlap ? 2 : 1);
      EXPECT_EQ(model.values(unit(0), 0).numel(), model.residency().partition({0, 0}).padded());
      model.after_forward(unit(0));
      EXPECT_THROW(model.values(unit(0), 0), Error);
      model.before_forward(unit(2));
      EXPECT_NO_THROW(model.values(unit(0), 0)) << "the borrowed one";
      EXPECT_EQ(gathers(), overlap ? 4 : 3);
      model.after_forward(unit(2));
      model.before_backward(unit(2));
      EXPECT_EQ(gathers(), overlap ? 6 : 5) << "both again; the Unit before was prefetched on the way there";
      model.settle();
    }
  });
}

TEST(ShardedModel, prefetches_follow_the_order_that_is_expected) {
  run_ranks(2, [](Communicator& group, const Context& context) {
    ThreeUnits units;
    ShardedModel model(context, group, units, {.policy = Policy::stage(3)});
    model.load(InitialState(1));
    const auto gathers = [&] { return group.traffic()[Collective::all_gather].elements; };
    const auto elements = [&](size_t unit) { return model.residency().partition({unit, 0}).shard(); };
    const auto pass = [&](UnitPass each) {
      Unit& unit = *units.units()[each.unit];
      each.backward ? model.before_backward(unit) : model.before_forward(unit);
      if (each.backward) {
        model.after_backward(unit);
      } else {
        model.after_forward(unit);
      }
    };
    // As a stage of a pipeline that has the first Unit and the second, and two micro-batches between their passes.
    const std::vector<UnitPass> order{{0, false}, {1, false}, {0, false}, {1, false},
                                      {1, true},  {0, true},  {1, true},  {0, true}};
    model.expect(order);
    for (size_t i = 0; i < order.size(); ++i) {
      const int64_t before = gathers();
      pass(order[i]);
      const bool own = i == 0 || order[i - 1].unit == order[i].unit;  // what was leased could not be prefetched
      const bool next = i + 1 < order.size() && order[i + 1].unit != order[i].unit;
      EXPECT_EQ(gathers() - before, (own ? elements(order[i].unit) : 0) + (next ? elements(order[i + 1].unit) : 0))
          << "pass " << i;
    }
    const int64_t before = gathers();
    pass({2, false});
    EXPECT_EQ(gathers() - before, elements(2) + elements(0)) << "nobody expected it: its own and the borrowed one";
    pass({0, false});
    EXPECT_EQ(gathers() - before, elements(2) + 2 * elements(0) + elements(1)) << "the order begins again";
    model.settle();
  });
}

TEST(ShardedModel, what_was_prefetched_before_an_update_is_not_read_after_it) {
  run_ranks(2, [](Communicator& group, const Context& context) {
    ThreeUnits units;
    ShardedModel model(context, group, units, {.policy = Policy::stage(3), .optimizer = {.method = SgdOptions{}}});
    model.load(InitialState(1));
    const auto first_of_second = [&] {
      float first = 0;
      model.with_parameters(1, [&](const Parameter&, const Tensor& whole) { first = whole.data<float>()[0]; });
      return first;
    };
    const float before = first_of_second();
    Unit& second = *units.units()[1];
    MicroBatch micro_batch(model, kNoBatch, {});
    micro_batch.before_backward(second);
    for (float& element : micro_batch.gradient(second, 0, 0).into.span<float>()) element = 1;
    micro_batch.after_backward(second);
    model.finish_gradients();
    model.before_forward(*units.units()[0]);  // prefetches the second, which nobody reads
    model.after_forward(*units.units()[0]);
    model.update(0.5, 1);
    EXPECT_NE(first_of_second(), before);
  });
}

TEST(ShardedModel, gradients_outside_of_a_micro_batch_are_refused) {
  const auto self = make_self_communicator();
  const Context context = Context::reference();
  ThreeUnits units;
  ShardedModel model(context, *self, units, {});
  EXPECT_EQ(test::message_of<Error>([&] { model.gradient(*units.units()[1], 0, 0); }),
            "gradients of unit second belong to a micro-batch: run its passes through a MicroBatch");
}

TEST(ShardedModel, says_what_is_at_work) {
  const auto self = make_self_communicator();
  const Context context = Context::reference();
  ThreeUnits units;
  ShardedModel model(context, *self, units, {});
  Unit& second = *units.units()[1];
  EXPECT_EQ(model.at_work(), "before the first Unit, forward");
  model.before_forward(second);
  EXPECT_EQ(model.at_work(), "second, forward");
  model.enter_part("attention");
  model.enter_part("norm");
  EXPECT_EQ(model.at_work(), "second.attention.norm, forward");
  model.leave_part();
  model.leave_part();
  model.after_forward(second);
  model.before_backward(second);
  EXPECT_EQ(model.at_work(), "second, backward");
}

TEST(ShardedModel, gradients_are_summed_gathered_and_forgotten) {
  for_each_stage(2, [](int stage, Communicator& group, const Context& context) {
    ThreeUnits units;
    ShardedModel model(context, group, units, {.policy = Policy::stage(stage)});
    model.load(InitialState(1));
    const auto walk_back = [&](float value) {
      MicroBatch micro_batch(model, kNoBatch, {});
      for (size_t i = 3; i-- > 0;) {
        Unit& unit = *units.units()[i];
        micro_batch.before_backward(unit);
        const GradSink sink = micro_batch.gradient(unit, 0, 0);
        EXPECT_FALSE(sink.accumulate);
        for (float& element : sink.into.span<float>()) element = value * static_cast<float>(1 + group.rank());
        micro_batch.after_backward(unit);
      }
      std::vector<double> squares = context.to_host<double>(model.finish_gradients());
      EXPECT_EQ(squares.size(), 3u) << "one per Unit";
      all_reduce_values(group, context, squares);
      return std::accumulate(squares.begin(), squares.end(), 0.0);
    };
    const double count = static_cast<double>(units.parameter_count());
    EXPECT_DOUBLE_EQ(walk_back(1), 9 * count);
    EXPECT_EQ(model.gather_gradients(1)[0].to_vector<float>(), std::vector<float>(7 * 9, 3));
    model.discard_gradients();
    EXPECT_DOUBLE_EQ(walk_back(2), 36 * count) << "nothing of the discarded ones is left";
    model.update(1e-3, 1);
    EXPECT_DOUBLE_EQ(walk_back(1), 9 * count);
    EXPECT_EQ(model.optimizer().updates(), 1);
  });
}

TEST(ShardedModel, without_training_nobody_wants_gradients) {
  const auto self = make_self_communicator();
  const Context context = Context::reference();
  ThreeUnits units;
  ShardedModel model(context, *self, units, {.training = false});
  EXPECT_FALSE(model.gradient(*units.units()[1], 0, 0));
  EXPECT_EQ(context.memory->ledger().current(Category::gradients), 0);
  EXPECT_EQ(context.memory->ledger().current(Category::optimizer), 0);
}

TEST(ShardedModel, without_training_what_needs_gradients_is_an_error) {
  const auto self = make_self_communicator();
  const Context context = Context::reference();
  ThreeUnits units;
  ShardedModel model(context, *self, units, {.training = false});
  model.load(InitialState(1));
  const auto expect_refused = [](const char* call, const std::function<void()>& body) {
    EXPECT_EQ(test::message_of<Error>(body),
              fmt::format("{} needs gradients and optimizer states, which a ShardedModel with training = false does "
                          "not keep: make it with training = true",
                          call));
  };
  expect_refused("finish_gradients()", [&] { model.finish_gradients(); });
  expect_refused("gather_gradients()", [&] { model.gather_gradients(0); });
  expect_refused("update()", [&] { model.update(1e-3, 1); });
  expect_refused("discard_gradients()", [&] { model.discard_gradients(); });
  expect_refused("optimizer()", [&] { model.optimizer(); });
}

TEST(ShardedModel, its_model_knows_the_ranks_while_it_lives) {
  run_ranks(2, [](Communicator& group, const Context& context) {
    ThreeUnits units;
    {
      const ShardedModel model(context, group, units, {.policy = Policy::stage(2)});
      EXPECT_EQ(&units.mesh().group(Group::balance), &group);
      EXPECT_EQ(&model.mesh().group(Group::parameters), &group);
    }
    EXPECT_EQ(units.mesh().world().size(), 1);
  });
}

TEST(ShardedModel, a_rank_owns_its_interval_of_each_units_squares) {
  run_ranks(2, [](Communicator& group, const Context& context) {
    ThreeUnits units;
    ShardedModel model(context, group, units, {.policy = Policy::stage(1)});
    model.load(InitialState(1));
    MicroBatch micro_batch(model, kNoBatch, {});
    for (size_t i = 3; i-- > 0;) {
      Unit& unit = *units.units()[i];
      micro_batch.before_backward(unit);
      const GradSink sink = micro_batch.gradient(unit, 0, 0);
      for (float& element : sink.into.span<float>()) element = static_cast<float>(1 + i);
      micro_batch.after_backward(unit);
    }
    const std::vector<double> squares = context.to_host<double>(model.finish_gradients());
    for (size_t i = 0; i < 3; ++i) {
      const Partition& partition = model.residency().partition({i, 0});
      const Interval owned = intersect(partition.owned(group.rank()), {0, partition.size()});
      const auto each = static_cast<double>(2 * (1 + i));  // of two ranks
      EXPECT_EQ(squares[i], each * each * static_cast<double>(owned.size())) << units.units()[i]->name();
    }
  });
}

TEST(ShardedModel, its_units_are_free_when_it_is_gone) {
  const auto self = make_self_communicator();
  const Context context = Context::reference();
  ThreeUnits units;
  { const ShardedModel model(context, *self, units, {}); }
  EXPECT_THROW(units.units()[0]->store(), Error);
}

}  // namespace
}  // namespace nought::sharded_model_test
