// A model's work as sections: they compute what one call computes, and their passes come in the order that was told.
#include "nought/nn/section.h"

#include "support/local_store.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/autograd/recompute_options.h"

namespace nought::section_test {
namespace {

constexpr size_t kUnits = 5;

Tensor input(const Context& context) {
  Tensor x = context.empty({3, 4}, DType::f32);
  for (int64_t i = 0; i < x.numel(); ++i)
    x.data<float>()[i] = static_cast<float>(normal_at(1, static_cast<uint64_t>(i)));
  return x;
}

/// Units "0", "1", ..., each of one weight. The first `frozen` of them are not trained.
struct Chain final : Model {
  explicit Chain(size_t frozen = 0) {
    for (size_t i = 0; i < kUnits; ++i) {
      Unit& unit = add_unit(std::to_string(i));
      weights.push_back(unit.add(unit.name() + ".w", {4, 4}, Init::zeros()));
    }
    for (size_t i = 0; i < frozen; ++i) units()[i]->choose_trained([](const Parameter&) { return false; });
  }
  static Var work(Tape& tape, const Var& x, const ParameterView& weight) {
    return add(tape, x, activate(tape, linear(tape, x, weight, {}, WeightLayout::out_in), Activation::silu));
  }
  Var loss(Tape& tape, const Batch& batch, double) override {
    Var x = Tape::constant(batch.input_ids);
    for (const ParameterView& weight : weights)
      x = tape.run_unit(weight.unit(), x, [&](Tape& inner, const Var& in) { return work(inner, in, weight); });
    return x;
  }
  std::vector<Section> cut() const {
    std::vector<Section> all;
    for (const ParameterView& weight : weights)
      all.push_back({.unit = &weight.unit(),
                     .body = [&weight](Tape& tape, const Var& x, MicroBatchState&) { return work(tape, x, weight); }});
    return all;
  }
  std::vector<ParameterView> weights;
};

struct Result {
  std::vector<UnitPass> passes;
  std::vector<std::vector<float>> gradients;
};

/// Runs sections forward and back.
Result run(const Context& context, Chain& model, std::vector<Section> sections,
           std::shared_ptr<MicroBatchState> state) {
  test::LocalStore store(context, model.units(), DType::f32);
  Tape tape(context);
  tape.backward(run_sections(tape, sections, Tape::constant(input(context)), state));
  Result result;
  for (const std::string& event : store.events)
    for (const bool backward : {false, true}) {
      const std::string prefix = backward ? "before_backward " : "before_forward ";
      if (event.starts_with(prefix)) result.passes.push_back({std::stoul(event.substr(prefix.size())), backward});
    }
  for (size_t i = 0; i < kUnits; ++i) result.gradients.push_back(store.flat_gradients(i).to_vector<float>());
  return result;
}

std::vector<UnitPass> told(std::span<const Section> sections) {
  std::vector<UnitPass> passes = forward_passes(sections);
  const std::vector<UnitPass> back = backward_passes(sections);
  passes.insert(passes.end(), back.begin(), back.end());
  return passes;
}

TEST(Section, passes_come_as_told_and_recomputation_changes_no_bit) {
  const Context context = Context::reference();
  for (const size_t frozen : {0, 1, 2, 4}) {
    Chain plain(frozen);
    const Result first = run(context, plain, plain.cut(), std::make_shared<MicroBatchState>());
    EXPECT_EQ(first.passes.size(), 2 * kUnits - frozen);
    for (const Recompute mode : {Recompute::none, Recompute::selective, Recompute::full})
      for (const size_t together : {1, 2, 3, 5})
        for (const bool contiguous : {false, true}) {
          SCOPED_TRACE(fmt::format("{} frozen, {} recompute, {} together", frozen, name_of(mode), together));
          Chain model(frozen);
          RecomputeOptions options = mode;
          options.contiguous = contiguous;
          SavedInputs saved(options);
          std::vector<Section> sections = model.cut();
          for (size_t i = 0; i < kUnits; ++i) {
            sections[i].recompute = mode, sections[i].joins = i % together != 0;
            if (contiguous) sections[i].saved_inputs = &saved;
          }
          const Result result = run(context, model, sections, std::make_shared<MicroBatchState>());
          EXPECT_EQ(result.passes, told(sections));
          EXPECT_EQ(result.gradients, first.gradients);
        }
  }
}

TEST(Section, a_model_without_sections_is_one_call_of_its_loss) {
  const Context context = Context::reference();
  Chain cut, whole;
  const Result expected = run(context, cut, cut.cut(), std::make_shared<MicroBatchState>());
  const Batch batch{.input_ids = input(context), .targets = {}};
  const std::vector<Section> sections = whole.sections();
  EXPECT_EQ(sections.size(), 1u);
  const Result result = run(context, whole, sections, whole.begin(context, batch, 1));
  EXPECT_EQ(result.gradients, expected.gradients);
  std::vector<UnitPass> passes = whole.passes(false);
  for (const UnitPass& back : whole.passes(true)) passes.push_back(back);
  EXPECT_EQ(result.passes, passes) << "its passes are told from its Units";
}

TEST(Section, what_nobody_trains_is_not_walked_back) {
  Chain model(kUnits);
  for (size_t i = 0; i < kUnits; ++i) model.units()[i]->attach(nullptr, i);
  EXPECT_EQ(model.passes(false).size(), kUnits);
  EXPECT_TRUE(model.passes(true).empty());
}

TEST(Section, a_section_of_no_unit_runs_between_the_others) {
  const Context context = Context::reference();
  Chain model;
  std::vector<Section> sections = model.cut();
  sections.insert(
      sections.begin() + 2,
      Section{.unit = nullptr, .body = [](Tape& tape, const Var& x, MicroBatchState&) { return scale(tape, x, 3); }});
  const Result result = run(context, model, sections, std::make_shared<MicroBatchState>());
  EXPECT_EQ(result.passes, told(sections));
  EXPECT_EQ(result.passes.size(), 2 * kUnits);
}

TEST(Section, passes_of_tiles_are_within_those_of_their_unit) {
  Unit whole("whole"), first("first"), last("last");
  for (Unit* tile : {&first, &last}) {
    tile->become_tile_of(whole);
    tile->add(tile->name(), {4, 4}, Init::zeros());
  }
  size_t index = 0;
  for (Unit* unit : {&whole, &first, &last}) unit->attach(nullptr, index++);
  EXPECT_TRUE(whole.trained()) << "its tiles are";
  Section section{.unit = &whole};
  const std::span<const Section> sections(&section, 1);
  using testing::ElementsAre;
  EXPECT_THAT(forward_passes(sections), ElementsAre(UnitPass{0, false}, UnitPass{1, false}, UnitPass{2, false}));
  EXPECT_THAT(backward_passes(sections), ElementsAre(UnitPass{0, true}, UnitPass{2, true}, UnitPass{1, true}));
  section.recompute = Recompute::full;
  EXPECT_THAT(backward_passes(sections), ElementsAre(UnitPass{0, true}, UnitPass{2, true}, UnitPass{1, true}));
  section.reads_tiles = true;
  EXPECT_THAT(backward_passes(sections), ElementsAre(UnitPass{0, true}, UnitPass{1, false}, UnitPass{2, false},
                                                     UnitPass{2, true}, UnitPass{1, true}));
  Unit borrower("borrower");
  borrower.attach(nullptr, 3), borrower.borrow_tiles(whole);
  section = {.unit = &borrower};
  EXPECT_THAT(forward_passes(sections), ElementsAre(UnitPass{3, false}, UnitPass{1, false}, UnitPass{2, false}));
}

}  // namespace
}  // namespace nought::section_test
