#include "nought/autograd/tape.h"

#include <cstring>

#include "support/local_store.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/autograd/functions.h"

namespace nought::tape_test {
namespace {

using test::LocalStore;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Not;

struct TwoUnits final : Model {
  TwoUnits() {
    for (const char* name : {"a", "b"}) {
      Unit& unit = add_unit(name);
      weights.push_back(unit.add(std::string(name) + ".w", {8, 8}, Init::zeros()));
    }
  }
  Var run(Tape& tape, const Var& x, Recompute recompute) const {
    Var y = x;
    for (const ParameterView& weight : weights)
      y = tape.run_unit(
          weight.unit(), y,
          [&weight](Tape& inner, const Var& in) {
            return add(inner, in,
                       activate(inner, linear(inner, in, weight, {}, WeightLayout::out_in), Activation::silu));
          },
          recompute);
    return y;
  }
  Var loss(Tape&, const Batch&, double) override { return {}; }
  std::vector<ParameterView> weights;
};

Tensor input(const Context& context) {
  Tensor x = context.empty({4, 8}, DType::f32);
  for (int64_t i = 0; i < x.numel(); ++i)
    x.data<float>()[i] = static_cast<float>(normal_at(1, static_cast<uint64_t>(i)));
  return x;
}

TEST(Tape, units_announce_their_work_and_the_walk_back_meets_leave_first) {
  const Context context = Context::reference();
  TwoUnits model;
  LocalStore store(context, model.units(), DType::f32);
  Tape tape(context);
  const Var y = model.run(tape, tape.input(input(context)), Recompute::none);
  tape.backward(y);
  EXPECT_THAT(store.events,
              ElementsAre("before_forward a", "after_forward a", "before_forward b", "after_forward b",
                          "before_backward b", "after_backward b", "before_backward a", "after_backward a"));
}

TEST(Tape, recomputed_units_announce_the_same_and_give_the_same_bits) {
  const Context context = Context::reference();
  std::vector<float> results[2];
  std::vector<std::string> events[2];
  int run = 0;
  for (const Recompute recompute : {Recompute::none, Recompute::full}) {
    TwoUnits model;
    LocalStore store(context, model.units(), DType::f32);
    Tape tape(context);
    const Var x = tape.input(input(context));
    tape.backward(model.run(tape, x, recompute));
    for (const Tensor& t : {tape.gradient(x), store.flat_gradients(0), store.flat_gradients(1)})
      for (float value : t.to_vector<float>()) results[run].push_back(value);
    events[run++] = store.events;
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(events[0], events[1]);
}

TEST(Tape, parts_of_a_unit_announce_themselves_in_both_passes) {
  const Context context = Context::reference();
  TwoUnits model;
  LocalStore store(context, model.units(), DType::f32);
  Tape tape(context);
  Unit& unit = *model.units()[0];
  const Var x = tape.input(input(context));
  const Var y = tape.run_unit(unit, x, [&](Tape& inner, const Var& in) {
    const Var once = inner.run_part(unit, "first", [&] { return scale(inner, in, 2); });
    return inner.run_part(unit, "second", [&] { return scale(inner, once, 3); });
  });
  tape.backward(y);
  EXPECT_THAT(store.events,
              ElementsAre("before_forward a", "enter first", "leave", "enter second", "leave", "after_forward a",
                          "before_backward a", "enter second", "leave", "enter first", "leave", "after_backward a"));
  EXPECT_THAT(tape.gradient(x).to_vector<float>(), ::testing::Each(6));
}

TEST(Tape, activations_are_freed_as_the_walk_goes) {
  const Context context = Context::reference();
  TwoUnits model;
  LocalStore store(context, model.units(), DType::f32);
  MemoryLedger& ledger = context.memory->ledger();
  Tape tape(context);
  const Var x = tape.input(input(context));
  {
    const Var y = model.run(tape, x, Recompute::none);
    tape.backward(y);
  }
  const int64_t tensor = 4 * 8 * 4;
  EXPECT_EQ(ledger.current(Category::activations), 2 * tensor);  // x and its gradient
}

/// A store that lets gradients of weights wait.
struct DeferringStore final : UnitStore {
  explicit DeferringStore(LocalStore& inner) : inner(inner) {}
  void before_forward(Unit& unit) override { inner.before_forward(unit); }
  void after_forward(Unit& unit) override { inner.after_forward(unit); }
  void before_backward(Unit& unit) override { inner.before_backward(unit); }
  void after_backward(Unit& unit) override { inner.after_backward(unit); }
  Tensor values(const Unit& unit, size_t segment) override { return inner.values(unit, segment); }
  DType dtype() const override { return inner.dtype(); }
  GradSink gradient(const Unit& unit, size_t first, size_t last) override {
    inner.events.push_back("gradient " + unit.name());
    return inner.gradient(unit, first, last);
  }
  bool defers() const override { return true; }
  void defer(std::function<void()> product) override { waiting.push_back(std::move(product)); }

  LocalStore& inner;
  std::vector<std::function<void()>> waiting;
};

TEST(Tape, gradients_of_weights_may_be_formed_later_with_the_same_bits) {
  const Context context = Context::reference();
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    std::vector<std::vector<float>> at_once, later;
    for (auto* results : {&at_once, &later}) {
      TwoUnits model;
      LocalStore store(context, model.units(), DType::f32);
      DeferringStore deferring(store);
      Tape tape(context, true, results == &later ? &deferring : nullptr);
      const Var x = tape.input(input(context));
      tape.backward(model.run(tape, x, recompute));
      results->push_back(tape.gradient(x).to_vector<float>());
      if (results == &later) {
        EXPECT_THAT(store.flat_gradients(0).to_vector<float>(), ::testing::Each(0)) << "they wait";
        EXPECT_EQ(deferring.waiting.size(), 2u);
        EXPECT_THAT(store.events, Not(Contains("gradient a")));
        for (const std::function<void()>& product : deferring.waiting) product();
        EXPECT_THAT(store.events, Contains("gradient a"));
      }
      for (const size_t unit : {0, 1}) results->push_back(store.flat_gradients(unit).to_vector<float>());
    }
    EXPECT_EQ(later, at_once) << name_of(recompute);
  }
}

/// Units without anything to train below one with something: no gradient is wanted there, so nobody walks back to it.
TEST(Tape, the_walk_back_ends_above_units_that_nobody_trains) {
  const Context context = Context::reference();
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    TwoUnits model;
    model.units()[0]->choose_trained([](const Parameter&) { return false; });
    LocalStore store(context, model.units(), DType::f32);
    Tape tape(context);
    const Var y = model.run(tape, Tape::constant(input(context)), recompute);
    EXPECT_TRUE(y.requires_grad());
    tape.backward(y);
    EXPECT_THAT(store.events, ElementsAre("before_forward a", "after_forward a", "before_forward b", "after_forward b",
                                          "before_backward b", "after_backward b"))
        << name_of(recompute);
  }
}

TEST(Tape, a_unit_that_nobody_trains_hands_gradients_down_to_one_below) {
  const Context context = Context::reference();
  std::vector<float> gradients[2];
  for (const bool frozen : {false, true})
    for (const Recompute recompute : {Recompute::none, Recompute::full}) {
      TwoUnits model;
      if (frozen) model.units()[1]->choose_trained([](const Parameter&) { return false; });
      LocalStore store(context, model.units(), DType::f32);
      Tape tape(context);
      tape.backward(model.run(tape, Tape::constant(input(context)), recompute));
      EXPECT_THAT(store.events, Contains("after_backward b"));
      gradients[frozen] = store.flat_gradients(0).to_vector<float>();
      EXPECT_EQ(gradients[frozen], gradients[0]);
      if (frozen) {
        EXPECT_THAT(store.flat_gradients(1).to_vector<float>(), ::testing::Each(0)) << "nobody wrote one";
      }
    }
}

TEST(Tape, where_nothing_is_trained_nothing_is_recorded) {
  const Context context = Context::reference();
  for (const Recompute recompute : {Recompute::none, Recompute::full}) {
    TwoUnits model;
    for (const auto& unit : model.units()) unit->choose_trained([](const Parameter&) { return false; });
    LocalStore store(context, model.units(), DType::f32);
    Tape tape(context);
    const Var y = model.run(tape, Tape::constant(input(context)), recompute);
    EXPECT_FALSE(y.requires_grad());
    EXPECT_THROW(tape.backward(y), Error);
    EXPECT_EQ(context.memory->ledger().current(Category::activations), y.value.bytes());
  }
}

TEST(Tape, without_recording_nothing_is_kept) {
  const Context context = Context::reference();
  TwoUnits model;
  LocalStore store(context, model.units(), DType::f32);
  Tape tape(context, false);
  {
    const Var y = model.run(tape, Tape::constant(input(context)), Recompute::none);
    EXPECT_FALSE(y.requires_grad());
    EXPECT_THROW(tape.backward(y), Error);
  }
  EXPECT_EQ(context.memory->ledger().current(Category::activations), 0);
}

}  // namespace
}  // namespace nought::tape_test
