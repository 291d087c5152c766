#include "nought/nn/freezing.h"

#include "support/message_of.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/nn/layers.h"
#include "nought/nn/model.h"

namespace nought::freezing_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

/// An embedding, two blocks of q and k as one product, a norm and a choice bias, and a head.
class Small final : public Model {
 public:
  Small() {
    add_unit("embedding").add("embed.weight", {5, 3}, Init::zeros(), ParameterRole::embedding);
    for (const std::string name : {"layers.0", "layers.1"}) {
      Unit& unit = add_unit(name);
      Linear(unit, {.in = 3, .out = {3, 2}, .names = {name + ".q", name + ".k"}});
      Norm(unit, name + ".norm", NormKind::rms, 3, 1e-6);
      unit.add(name + ".choice_bias", {4}, Init::zeros(), ParameterRole::choice_bias);
    }
    add_unit("head").add("head.weight", {5, 3}, Init::zeros(), ParameterRole::head);
  }
  Var loss(Tape&, const Batch&, double) override { return {}; }

  std::vector<std::string> trained() const {
    std::vector<std::string> names;
    for (const auto& unit : units())
      for (const Parameter& parameter : unit->parameters())
        if (parameter.trainable) names.push_back(parameter.name);
    return names;
  }
};

std::vector<std::string> trained_with(const Freezing& freezing) {
  Small model;
  apply(freezing, model);
  return model.trained();
}

std::string refusal_of(const Freezing& freezing) {
  Small model;
  return test::message_of<ConfigError>([&] { apply(freezing, model); });
}

TEST(Freezing, without_patterns_all_is_trained_that_can_be) {
  EXPECT_THAT(trained_with({}),
              UnorderedElementsAre("embed.weight", "layers.0.q.weight", "layers.0.k.weight", "layers.0.norm.weight",
                                   "layers.1.q.weight", "layers.1.k.weight", "layers.1.norm.weight", "head.weight"));
}

TEST(Freezing, patterns_are_searched_for_in_names_and_trainable_wins) {
  EXPECT_THAT(trained_with({{"embed", "^layers\\.0"}, {}}),
              UnorderedElementsAre("layers.1.q.weight", "layers.1.k.weight", "layers.1.norm.weight", "head.weight"));
  EXPECT_THAT(trained_with({{"."}, {"head"}}), UnorderedElementsAre("head.weight"));
  EXPECT_THAT(trained_with({{"layers"}, {"norm", "layers.1"}}),
              UnorderedElementsAre("embed.weight", "layers.0.norm.weight", "layers.1.q.weight", "layers.1.k.weight",
                                   "layers.1.norm.weight", "head.weight"));
  EXPECT_EQ(trained_with({{"."}, {"."}}).size(), 8u) << "but for what is never trained";
}

TEST(Freezing, a_pattern_without_a_match_names_the_nearest_parameter) {
  EXPECT_THAT(refusal_of({{"haed"}, {}}),
              AllOf(HasSubstr("training.freeze: \"haed\" matches no parameter"), HasSubstr("nearest is head.weight")));
  EXPECT_THAT(refusal_of({{"embed", "layers\\.7\\.q"}, {}}),
              AllOf(HasSubstr("layers\\.7\\.q"), HasSubstr("nearest is layers.0.q.weight")));
  EXPECT_THAT(refusal_of({{"."}, {"hed\\.weight"}}), AllOf(HasSubstr("training.trainable"), HasSubstr("head.weight")));
}

TEST(Freezing, refuses_what_would_do_nothing) {
  EXPECT_THAT(refusal_of({{}, {"head"}}), HasSubstr("training.trainable has no effect without training.freeze"));
  EXPECT_THAT(refusal_of({{"."}, {}}), HasSubstr("leaves no parameter to train"));
  EXPECT_THAT(refusal_of({{"."}, {"choice_bias"}}), AllOf(HasSubstr("never trained"), HasSubstr("choice_bias")));
  EXPECT_THAT(refusal_of({{"("}, {}}), HasSubstr("\"(\" is not a regular expression"));
}

TEST(Freezing, parameters_of_one_product_are_not_told_apart) {
  EXPECT_THAT(refusal_of({{"layers\\.1\\.q"}, {}}),
              AllOf(HasSubstr("layers.1.q.weight and layers.1.k.weight"), HasSubstr("train both or freeze both")));
}

TEST(Freezing, counts_what_is_frozen) {
  Small model;
  EXPECT_EQ(model.frozen_count(), 0) << "what is never trained does not count";
  apply({{"embed", "norm"}, {}}, model);
  EXPECT_EQ(model.frozen_count(), 5 * 3 + 2 * 3);
}

/// Rows of 32: a frozen matrix or table becomes codes; norms, what is trained, and rows that are no whole blocks do
/// not.
TEST(Freezing, frozen_matrices_and_tables_of_whole_blocks_become_codes_if_asked) {
  struct Wide final : Model {
    Wide() {
      add_unit("embedding").add("embed.weight", {5, 32}, Init::zeros(), ParameterRole::embedding);
      Unit& unit = add_unit("block");
      Linear(unit, {.in = 32, .out = {3, 2}, .names = {"q", "k"}});
      unit.add("narrow.weight", {4, 20}, Init::zeros());
      Norm(unit, "norm", NormKind::rms, 32, 1e-6);
      add_unit("head").add("head.weight", {5, 32}, Init::zeros(), ParameterRole::head);
    }
    Var loss(Tape&, const Batch&, double) override { return {}; }
  };
  for (const bool codes : {false, true}) {
    Wide model;
    apply({.freeze = {"."}, .trainable = {"head"}, .codes = codes ? std::optional(WeightCodes{}) : std::nullopt},
          model);
    std::vector<std::string> quantized;
    for (const auto& unit : model.units())
      for (const Parameter& parameter : unit->parameters())
        if (parameter.quantized) quantized.push_back(parameter.name);
    if (codes) {
      EXPECT_THAT(quantized, UnorderedElementsAre("embed.weight", "q.weight", "k.weight"));
    } else {
      EXPECT_TRUE(quantized.empty());
    }
  }
}

}  // namespace
}  // namespace nought::freezing_test
