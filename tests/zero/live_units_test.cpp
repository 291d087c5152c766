// Which Units stay: the smallest, as many as have room, while a pass is to come that reads them, and is near enough.
#include "nought/zero/live_units.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/comm/thread.h"
#include "nought/zero/sharded_model.h"

namespace nought::live_units_test {
namespace {

using testing::ElementsAre;

constexpr int64_t kAll = std::numeric_limits<int64_t>::max();

/// The Units have 60, 10, 30 and 0 elements, and the last one borrows the first.
struct FourUnits {
  FourUnits() {
    for (size_t i = 0; i < 4; ++i) {
      units.push_back(std::make_unique<Unit>(std::string(1, static_cast<char>('a' + i))));
      units.back()->attach(nullptr, i);
    }
    units[3]->borrow(*units[0]);
  }
  LiveUnits live(const LiveParameters& limits) const { return {units, {60, 10, 30, 0}, limits}; }

  std::vector<std::unique_ptr<Unit>> units;
};

/// Two micro-batches: F F F F B B B B, twice.
const std::vector<UnitPass> kOrder{{0, false}, {1, false}, {2, false}, {3, false}, {3, true},  {2, true},
                                   {1, true},  {0, true},  {0, false}, {1, false}, {2, false}, {3, false},
                                   {3, true},  {2, true},  {1, true},  {0, true}};

/// Whether each of the Units stays behind the pass at `place`.
std::vector<bool> staying(const LiveUnits& live, size_t place) {
  std::vector<bool> all;
  for (size_t unit = 0; unit < 4; ++unit) all.push_back(live.stays(unit, place + 1));
  return all;
}

TEST(LiveUnits, are_the_smallest_that_have_room) {
  const FourUnits of;
  EXPECT_THAT(of.live({}).sizes(), ElementsAre(10, 30, 60));
  for (const auto& [most, expected] : {std::pair<int64_t, std::vector<bool>>{9, {false, false, false, false}},
                                       {10, {false, true, false, false}},
                                       {39, {false, true, false, false}},
                                       {40, {false, true, true, false}},
                                       {100, {true, true, true, false}}}) {
    LiveUnits live = of.live({.most = most});
    live.expect(kOrder);
    EXPECT_EQ(staying(live, 0), expected) << most;
  }
  EXPECT_EQ(count_live(std::vector<int64_t>{10, 30, 60}, 45).units, 2u);
  EXPECT_EQ(count_live(std::vector<int64_t>{10, 30, 60}, 45).elements, 40);
}

TEST(LiveUnits, stay_until_the_last_pass_that_reads_them) {
  const FourUnits of;
  LiveUnits live = of.live({.most = kAll});
  EXPECT_THAT(staying(live, 0), ElementsAre(false, false, false, false)) << "no order is known";
  live.expect(kOrder);
  EXPECT_THAT(staying(live, 11), ElementsAre(true, true, true, false));
  EXPECT_THAT(staying(live, 13), ElementsAre(true, true, false, false)) << "that was its last pass";
  EXPECT_THAT(staying(live, 15), ElementsAre(false, false, false, false));
  live.expect(std::vector<UnitPass>{{0, false}, {1, false}, {3, false}});
  EXPECT_THAT(staying(live, 0), ElementsAre(true, true, false, false)) << "the last one borrows it";
  EXPECT_THAT(staying(live, 2), ElementsAre(false, false, false, false));
  live.expect({});
  EXPECT_THAT(staying(live, 0), ElementsAre(false, false, false, false));
}

/// Between the forward and the backward pass of the third Unit the last one reads the borrowed 60 elements twice, and
/// between those of the second one 60 more are read.
TEST(LiveUnits, do_not_stay_for_a_pass_that_is_too_far) {
  const FourUnits of;
  for (const auto& [distance, second, third] : {std::tuple<int64_t, bool, bool>{180, true, true},
                                                {179, false, true},
                                                {120, false, true},
                                                {119, false, false}}) {
    LiveUnits live = of.live({.most = kAll, .reuse_distance = distance});
    live.expect(kOrder);
    EXPECT_EQ(live.stays(1, 2), second) << distance;
    EXPECT_EQ(live.stays(2, 3), third) << distance;
    EXPECT_EQ(live.stays(1, 7), distance >= 120) << "the first one is read twice up to the next micro-batch's";
  }
}

/// Bytes of parameters, and elements that were gathered, of a rank of two.
TEST(LiveUnits, are_gathered_once_in_an_order_and_gone_behind_it) {
  class Model3 final : public Model {
   public:
    Model3() {
      add_unit("first").add("first.weight", {64, 3}, Init::normal(0.5));
      add_unit("second").add("second.weight", {64}, Init::normal(0.5));
    }
    Var loss(Tape&, const Batch&, double) override { fail<Error>("nobody asks for it"); }
  };
  run_ranks(2, [](Communicator& group, const Context& context) {
    for (const bool overlap : {true, false}) {
      Model3 units;
      ShardedModel model(context, group, units,
                         {.policy = Policy::stage(3), .overlap = overlap, .live = {.most = kAll}});
      model.load(InitialState(1));
      const auto gathers = [&] { return group.traffic()[Collective::all_gather].calls; };
      const auto bytes = [&] { return context.memory->ledger().current(Category::parameters); };
      const auto pass = [&](UnitPass each) {
        Unit& unit = *units.units()[each.unit];
        each.backward ? model.before_backward(unit) : model.before_forward(unit);
        each.backward ? model.after_backward(unit) : model.after_forward(unit);
      };
      const std::vector<UnitPass> order{{0, false}, {1, false}, {1, true}, {0, true},
                                        {0, false}, {1, false}, {1, true}, {0, true}};
      const int64_t stored = bytes(), before = gathers();
      model.expect(order);
      for (size_t i = 0; i + 1 < order.size(); ++i) pass(order[i]);
      EXPECT_EQ(gathers() - before, 2);
      EXPECT_EQ(bytes() - stored, 4 * model.residency().partition({0, 0}).padded()) << "the second one's last pass";
      EXPECT_THROW(model.values(*units.units()[0], 0), Error) << "it is whole, but nobody may read it";
      pass(order.back());
      EXPECT_EQ(bytes(), stored);
      model.expect({});
      pass({0, false});
      model.settle();
      EXPECT_EQ(gathers() - before, overlap ? 4 : 3) << "nothing stays in an order that nobody told";
    }
  });
}

/// An order that ends too early leaves nothing that an update makes old.
TEST(LiveUnits, are_given_back_before_an_update_and_with_a_new_order) {
  class One final : public Model {
   public:
    One() { add_unit("first").add("first.weight", {64}, Init::normal(0.5)); }
    Var loss(Tape&, const Batch&, double) override { fail<Error>("nobody asks for it"); }
  };
  run_ranks(2, [](Communicator& group, const Context& context) {
    One units;
    ShardedModel model(context, group, units, {.policy = Policy::stage(3), .live = {.most = kAll}});
    model.load(InitialState(1));
    const int64_t stored = context.memory->ledger().current(Category::parameters);
    const auto left = [&] { return context.memory->ledger().current(Category::parameters) - stored; };
    const auto begin = [&] {
      model.expect({{0, false}, {0, true}});
      model.before_forward(*units.units()[0]);
      model.after_forward(*units.units()[0]);
      EXPECT_GT(left(), 0);
    };
    begin();
    model.expect({});
    EXPECT_EQ(left(), 0);
    begin();
    model.finish_gradients();
    model.update(0.1, 1);
    EXPECT_EQ(left(), 0);
  });
}

}  // namespace
}  // namespace nought::live_units_test
