// What an adapter declares beside a linear layer, and how its factors begin.
#include "nought/nn/low_rank.h"

#include "support/local_store.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/nn/adapter.h"
#include "nought/nn/linear.h"
#include "nought/nn/linear_cut.h"

namespace nought::low_rank_layers_test {
namespace {

using testing::ElementsAre;

ModelAdapter of_layers(AdapterStart start = AdapterStart::uniform) {
  ModelAdapter adapter;
  adapter.layers["q"] = {.rank = 2, .scale = 2, .start = start};
  adapter.layers["v"] = {.rank = 3, .scale = 0.5, .start = start};
  return adapter;
}

Linear::Options of_three(const ModelAdapter& adapter) {
  return {.in = 4, .out = {3, 2, 2}, .names = {"q", "k", "v"}, .bias = true, .adapter = &adapter};
}

TEST(LowRankProducts, some_of_the_layers_of_a_product_have_factors_behind_its_own_parameters) {
  const ModelAdapter adapter = of_layers();
  Unit unit("block");
  const Linear linear(unit, of_three(adapter));
  std::vector<std::string> names;
  for (const Parameter& parameter : unit.parameters()) names.push_back(parameter.name);
  EXPECT_THAT(names, ElementsAre("q.weight", "k.weight", "v.weight", "q.bias", "k.bias", "v.bias",
                                 "base_model.model.q.lora_A.weight", "base_model.model.v.lora_A.weight",
                                 "base_model.model.q.lora_B.weight", "base_model.model.v.lora_B.weight"));
  EXPECT_EQ(unit.parameters()[7].shape, (Shape{3, 4}));
  EXPECT_EQ(unit.parameters()[9].shape, (Shape{2, 3}));
  EXPECT_EQ(unit.parameters()[9].role, ParameterRole::adapter);
  EXPECT_TRUE(unit.parameters()[9].decay);
  EXPECT_TRUE(linear.trained());
  Unit other("block");
  const ModelAdapter none;
  EXPECT_EQ(Linear(other, of_three(none)).trained(), true);
  EXPECT_EQ(other.parameters().size(), 6u);
}

TEST(LowRankProducts, they_add_to_the_columns_of_their_own_layers) {
  const ModelAdapter adapter = of_layers();
  const Context context = Context::reference();
  Unit unit("block");
  const Linear linear(unit, of_three(adapter));
  const test::LocalStore store(context, unit, DType::f64);
  const Tensor x = context.empty({1, 4}, DType::f64);
  for (int64_t i = 0; i < 4; ++i) x.data<double>()[i] = static_cast<double>(i) - 1.5;
  Tape tape(context, false);
  const Tensor with = linear(tape, Tape::constant(x)).value;
  for (const size_t b : {8, 9}) context.zero(store.values_of(unit, unit.parameters()[b]));
  const Tensor without = linear(tape, Tape::constant(x)).value;
  for (int64_t i = 0; i < 7; ++i) EXPECT_EQ(with.data<double>()[i] == without.data<double>()[i], i == 3 || i == 4) << i;
}

TEST(LowRankProducts, they_begin_as_peft_has_it) {
  const auto starts = [](AdapterStart start) {
    const ModelAdapter adapter = of_layers(start);
    Unit unit("block");
    const Linear linear(unit, of_three(adapter));
    return std::pair(unit.parameters()[7].init, unit.parameters()[9].init);
  };
  const auto [a, b] = starts(AdapterStart::uniform);
  EXPECT_EQ(a.kind, Init::Kind::uniform);
  EXPECT_DOUBLE_EQ(a.bound, 0.5) << "1 / sqrt(4)";
  EXPECT_EQ(b.kind, Init::Kind::zeros);
  const auto [normal_a, zero_b] = starts(AdapterStart::gaussian);
  EXPECT_EQ(normal_a.kind, Init::Kind::normal);
  EXPECT_DOUBLE_EQ(normal_a.std, 1.0 / 3);
  EXPECT_EQ(zero_b.kind, Init::Kind::zeros);
  const auto [random_a, random_b] = starts(AdapterStart::random);
  EXPECT_DOUBLE_EQ(random_a.bound, 0.5);
  EXPECT_EQ(random_b.kind, Init::Kind::uniform);
  EXPECT_DOUBLE_EQ(random_b.bound, 1 / std::sqrt(3.0));
}

}  // namespace
}  // namespace nought::low_rank_layers_test
