// What the options of an optimizer come to for each parameter. The updates are held to papers in zero/, on shards.
#include "nought/optim/optimizer.h"

#include "support/message_of.h"
#include "support/parameter_rules.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/optim/options.h"
#include "nought/tensor/random.h"

namespace nought::optimizer_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// A norm, a weight of the given role, a bias.
std::unique_ptr<Unit> block(ParameterRole role = ParameterRole::matrix) {
  auto unit = std::make_unique<Unit>("block.0");
  unit->add("block.0.norm.weight", {8}, Init::ones(), ParameterRole::norm);
  unit->add("block.0.attention.weight", {8, 8}, Init::normal(1), role);
  unit->add("block.0.bias", {8}, Init::zeros(), ParameterRole::bias);
  return unit;
}

std::vector<double> decays(const OptimizerOptions& options) {
  std::vector<double> result;
  for (const ParameterRule& rule : test::rules_for(options, *block())) result.push_back(rule.weight_decay);
  return result;
}

TEST(ParameterRule, decay_is_of_matrices_unless_all_are_asked_for) {
  EXPECT_THAT(decays({.weight_decay = 0.1}), ElementsAre(0, 0.1, 0));
  EXPECT_THAT(decays({.weight_decay = 0.1, .decay_all = true}), ElementsAre(0.1, 0.1, 0.1));
}

TEST(ParameterRule, the_first_group_that_matches_counts) {
  OptimizerOptions options{.weight_decay = 0.1};
  options.groups = {{"norm", 0.5, 0.2}, {"weight$", 3, {}}, {"attention", 9, 9.0}};
  EXPECT_THAT(decays(options), ElementsAre(0.2, 0.1, 0)) << "a group may let decay what would not";
  const std::vector<ParameterRule> rules = test::rules_for(options, *block());
  EXPECT_EQ(rules[0].lr_scale, 0.5);
  EXPECT_EQ(rules[1].lr_scale, 3);
  EXPECT_EQ(rules[2].lr_scale, 1);
  options.groups = {{"(", 1, {}}};
  EXPECT_THAT(test::message_of<ConfigError>([&] { test::rules_for(options, *block()); }), HasSubstr("\"(\""));
}

TEST(ParameterRule, muon_is_for_the_products_of_blocks) {
  OptimizerOptions options{.method = MuonOptions{.lr_scale = 10, .others_lr_scale = 0.5}};
  const std::vector<ParameterRule> inside = test::rules_for(options, *block());
  EXPECT_TRUE(std::holds_alternative<MuonOptions>(inside[1].method));
  EXPECT_EQ(inside[1].lr_scale, 10);
  EXPECT_TRUE(std::holds_alternative<AdamOptions>(inside[0].method));
  EXPECT_EQ(inside[0].lr_scale, 0.5);
  const auto is_muon = [&](ParameterRole role) {
    return std::holds_alternative<MuonOptions>(test::rules_for(options, *block(role))[1].method);
  };
  for (const ParameterRole role : {ParameterRole::expert, ParameterRole::router}) EXPECT_TRUE(is_muon(role));
  for (const ParameterRole role : {ParameterRole::embedding, ParameterRole::head, ParameterRole::bias})
    EXPECT_FALSE(is_muon(role)) << "a matrix of numbers alone is none to orthogonalise";
}

TEST(ParameterRule, what_is_not_trained_has_none) {
  const auto unit = block(ParameterRole::choice_bias);
  EXPECT_EQ(test::rules_for({.weight_decay = 0.1, .decay_all = true}, *unit).size(), 2u);
  EXPECT_THAT(test::message_of<Error>([&] { rule_for({}, unit->parameters()[1]); }), HasSubstr("attention.weight"));
}

TEST(ParameterRule, states_are_the_methods) {
  const auto states = [](const Method& method) { return ParameterRule{.method = method}.states(); };
  EXPECT_THAT(states(AdamOptions{}), ElementsAre(StateKind::exp_avg, StateKind::exp_avg_sq));
  EXPECT_THAT(states(LionOptions{}), ElementsAre(StateKind::exp_avg));
  EXPECT_THAT(states(AdagradOptions{}), ElementsAre(StateKind::sum));
  EXPECT_THAT(states(RmsPropOptions{}), ElementsAre(StateKind::exp_avg_sq));
  EXPECT_THAT(states(MuonOptions{}), ElementsAre(StateKind::momentum_buffer));
  EXPECT_THAT(states(SgdOptions{}), IsEmpty());
  EXPECT_THAT(states(SgdOptions{.momentum = 0.9}), ElementsAre(StateKind::momentum_buffer));
  EXPECT_TRUE(is_square(StateKind::sum) && is_square(StateKind::exp_avg_sq));
  EXPECT_FALSE(is_square(StateKind::exp_avg) || is_square(StateKind::master));
}

TEST(Method, other_betas_reach_those_that_have_some) {
  const Method adam = with_betas(AdamOptions{.eps = 3}, {0.5, 0.6});
  EXPECT_EQ(std::get<AdamOptions>(adam).beta1, 0.5);
  EXPECT_EQ(std::get<AdamOptions>(adam).beta2, 0.6);
  EXPECT_EQ(std::get<AdamOptions>(adam).eps, 3);
  EXPECT_EQ(std::get<SgdOptions>(with_betas(SgdOptions{.momentum = 0.9}, {0.5, 0.6})).momentum, 0.9);
}

TEST(Muon, a_direction_becomes_nearly_orthogonal_and_each_expert_its_own) {
  const Context context = Context::reference();
  for (const auto& [rows, columns] : {std::pair(6, 9), {9, 6}}) {
    const Tensor both = context.empty({2, rows, columns}, DType::f32);
    for (int64_t i = 0; i < both.numel(); ++i) both.data<float>()[i] = static_cast<float>(normal_at(3, i));
    MuonOptions{}.orthogonalize(context, both);
    const double stretch = std::max(1.0, static_cast<double>(rows) / columns);
    for (int64_t expert = 0; expert < 2; ++expert) {
      double squares = 0;
      for (const float value : both.slice(expert, expert + 1).to_vector<float>()) squares += value * value;
      // Singular values lie in about [0.7, 1.2] times the stretch.
      EXPECT_GT(squares, 6 * 0.4 * stretch);
      EXPECT_LT(squares, 6 * 1.5 * stretch);
    }
    const Tensor alone = context.empty({rows, columns}, DType::f32);
    for (int64_t i = 0; i < alone.numel(); ++i) alone.data<float>()[i] = static_cast<float>(normal_at(3, i));
    MuonOptions{}.orthogonalize(context, alone);
    EXPECT_EQ(alone.to_vector<float>(), both.slice(0, 1).to_vector<float>());
  }
}

}  // namespace
}  // namespace nought::optimizer_test
