// The product of low rank that is added to some columns of a result, and its gradients.
#include "nought/autograd/low_rank.h"

#include <array>

#include "support/gradient_check.h"

namespace nought::low_rank_test {
namespace {

constexpr int64_t kIn = 5, kOut = 6, kTokens = 4;

/// Columns [0, 2) and [2, 5) of six, with ranks 3 and 2: the last one gets nothing.
struct TwoLayers {
  explicit TwoLayers(Unit& unit) {
    const ParameterView first = unit.add("a0", {3, kIn}, Init::zeros()),
                        second = unit.add("a1", {2, kIn}, Init::zeros());
    a = unit.join(first, second, {5, kIn});
    columns.push_back({.b = unit.add("b0", {2, 3}, Init::zeros()), .rank = 3, .begin = 0, .end = 2, .scale = 0.5});
    columns.push_back({.b = unit.add("b1", {3, 2}, Init::zeros()), .rank = 2, .begin = 2, .end = 5, .scale = 3});
  }
  ParameterView a;
  std::vector<LowRankColumns> columns;
};

TEST(LowRank, some_columns_of_a_product_have_the_right_gradients) {
  const Context context = Context::reference();
  Unit unit("u");
  const TwoLayers layers(unit);
  const ParameterView w = unit.add("w", {kOut, kIn}, Init::zeros());
  test::GradientCheck(context, unit, test::random(context, {kTokens, kIn}, 1), [&](Tape& tape, const Var& x) {
    return add_low_rank(tape, linear(tape, x, w, {}, WeightLayout::out_in), x, layers.a, layers.columns);
  }).run();
}

TEST(LowRank, a_whole_product_has_the_right_gradients) {
  const Context context = Context::reference();
  Unit unit("u");
  const ParameterView a = unit.add("a", {2, kIn}, Init::zeros()), w = unit.add("w", {kOut, kIn}, Init::zeros());
  const LowRankColumns all{.b = unit.add("b", {kOut, 2}, Init::zeros()), .rank = 2, .end = kOut, .scale = 0.25};
  test::GradientCheck(context, unit, test::random(context, {kTokens, kIn}, 1), [&](Tape& tape, const Var& x) {
    return add_low_rank(tape, linear(tape, x, w, {}, WeightLayout::out_in), x, a, {all});
  }).run();
}

TEST(LowRank, what_is_dropped_has_no_part_in_gradients) {
  const Context context = Context::reference();
  Unit unit("u");
  const TwoLayers layers(unit);
  const ParameterView w = unit.add("w", {kOut, kIn}, Init::zeros());
  const LowRankDropout dropout{.probability = 0.5,
                               .key = 3,
                               .rows = context.upload<int64_t>({kTokens}, std::array<int64_t, kTokens>{7, 8, 9, 1})};
  test::GradientCheck(context, unit, test::random(context, {kTokens, kIn}, 1), [&](Tape& tape, const Var& x) {
    return add_low_rank(tape, linear(tape, x, w, {}, WeightLayout::out_in), x, layers.a, layers.columns, dropout);
  }).run();
}

TEST(LowRank, a_bias_of_some_columns_has_the_right_gradients) {
  const Context context = Context::reference();
  Unit unit("u");
  const ParameterView bias = unit.add("b", {2}, Init::zeros()), w = unit.add("w", {kOut, kIn}, Init::zeros());
  test::GradientCheck(context, unit, test::random(context, {kTokens, kIn}, 1), [&](Tape& tape, const Var& x) {
    return add_bias(tape, linear(tape, x, w, {}, WeightLayout::out_in), bias, 3, 5);
  }).run();
}

TEST(LowRank, it_is_scale_times_b_times_a_times_x) {
  const Context context = Context::reference();
  Unit unit("u");
  const TwoLayers layers(unit);
  const test::LocalStore store(context, unit, DType::f64);
  const Tensor x = test::random(context, {kTokens, kIn}, 1), y = context.zeros({kTokens, kOut}, DType::f64);
  Tape tape(context, /*recording=*/false);
  add_low_rank(tape, Tape::constant(y), Tape::constant(x), layers.a, layers.columns);
  const auto element = [&](size_t parameter, int64_t index) {
    return store.values_of(unit, unit.parameters()[parameter]).data<double>()[index];
  };
  for (int64_t t = 0; t < kTokens; ++t)
    for (int64_t o = 0; o < kOut; ++o) {
      double expected = 0;
      const size_t layer = o < 2 ? 0 : 1;
      const int64_t rank = layer == 0 ? 3 : 2, row = layer == 0 ? o : o - 2;
      for (int64_t k = 0; k < rank && o < 5; ++k)
        for (int64_t i = 0; i < kIn; ++i)
          expected += layers.columns[layer].scale * element(2 + layer, row * rank + k) * element(layer, k * kIn + i) *
                      x.data<double>()[t * kIn + i];
      EXPECT_NEAR(y.data<double>()[t * kOut + o], expected, 1e-12) << t << ", " << o;
    }
}

}  // namespace
}  // namespace nought::low_rank_test
