// The layers that are a product or a norm with weights of their own: what they declare, and what they compute.
#include "nought/nn/linear.h"

#include "support/local_store.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/nn/mlp.h"
#include "nought/nn/norm.h"

namespace nought {
namespace {

using testing::ElementsAre;

std::vector<std::string> names_of(const Unit& unit) {
  std::vector<std::string> names;
  for (const Parameter& parameter : unit.parameters()) names.push_back(parameter.name);
  return names;
}

Tensor ones(const Context& context, Shape shape) {
  const Tensor x = context.empty(shape, DType::f64);
  for (double& value : x.span<double>()) value = 1;
  return x;
}

TEST(Linear, several_names_are_one_product_and_their_biases_lie_together) {
  const Context context = Context::reference();
  Unit unit("block");
  const Linear linear(unit, {.in = 4, .out = {3, 2}, .names = {"q", "k"}, .bias = true});
  EXPECT_THAT(names_of(unit), ElementsAre("q.weight", "k.weight", "q.bias", "k.bias"));
  EXPECT_EQ(unit.parameters()[1].shape, (Shape{2, 4}));
  EXPECT_TRUE(unit.parameters()[0].decay);
  EXPECT_FALSE(unit.parameters()[2].decay) << "biases do not decay";
  test::LocalStore store(context, unit, DType::f64);
  Tape tape(context, false);
  const Tensor y = linear(tape, Tape::constant(ones(context, {2, 4}))).value;
  ASSERT_EQ(y.shape(), (Shape{2, 5}));
  const std::vector<double> w = store.flat_values().to_vector<double>();
  for (int64_t out = 0; out < 5; ++out) {
    double expected = w[static_cast<size_t>(unit.parameters()[2].range.begin + out)];  // the bias
    for (int64_t in = 0; in < 4; ++in) expected += w[static_cast<size_t>(out * 4 + in)];
    EXPECT_NEAR(y.data<double>()[out], expected, 1e-12);
  }
}

TEST(Linear, weights_of_layout_in_out_stand_alone) {
  Unit unit("block");
  const Linear linear(unit, {.in = 4, .out = {3}, .names = {"c"}, .layout = WeightLayout::in_out});
  EXPECT_EQ(unit.parameters()[0].shape, (Shape{4, 3}));
  Unit other("block");
  EXPECT_THROW(Linear(other, {.in = 4, .out = {3, 2}, .names = {"q", "k"}, .layout = WeightLayout::in_out}),
               ShapeError);
  EXPECT_THROW(Linear(other, {.in = 4, .out = {3}, .names = {"q", "k"}}), ShapeError);
}

TEST(Mlp, is_down_of_the_activation_gated_or_plain) {
  const Context context = Context::reference();
  for (const bool gated : {true, false}) {
    Unit unit("block");
    const Mlp mlp(unit,
                  {.gated = gated,
                   .activation = Activation::silu,
                   .up = {.in = 3,
                          .out = gated ? std::vector<int64_t>{2, 2} : std::vector<int64_t>{2},
                          .names = gated ? std::vector<std::string>{"gate", "up"} : std::vector<std::string>{"up"}},
                   .down = {.in = 2, .out = {3}, .names = {"down"}}});
    test::LocalStore store(context, unit, DType::f64);
    Tape tape(context, false);
    const Tensor y = mlp(tape, Tape::constant(ones(context, {1, 3}))).value;
    const std::vector<double> w = store.flat_values().to_vector<double>();
    const auto row_sum = [&](size_t row) { return w[3 * row] + w[3 * row + 1] + w[3 * row + 2]; };
    const auto silu = [](double x) { return x / (1 + std::exp(-x)); };
    const double inner[] = {gated ? silu(row_sum(0)) * row_sum(2) : silu(row_sum(0)),
                            gated ? silu(row_sum(1)) * row_sum(3) : silu(row_sum(1))};
    const auto down = static_cast<size_t>(unit.parameters().back().range.begin);
    for (size_t i = 0; i < 3; ++i)
      EXPECT_NEAR(y.data<double>()[i], w[down + 2 * i] * inner[0] + w[down + 2 * i + 1] * inner[1], 1e-12) << gated;
  }
}

TEST(Norm, declares_weights_that_do_not_decay_and_starts_as_the_identity) {
  Unit unit("block");
  const Norm rms(unit, "rms", {.features = 4}), offset(unit, "offset", {.features = 4, .weight_offset = 1});
  const Norm layer(unit, "layer", {.kind = NormKind::layer, .features = 4});
  EXPECT_THAT(names_of(unit), ElementsAre("rms.weight", "offset.weight", "layer.weight", "layer.bias"));
  for (const Parameter& parameter : unit.parameters()) EXPECT_FALSE(parameter.decay) << parameter.name;
  EXPECT_EQ(unit.parameters()[0].init.kind, Init::Kind::ones);
  EXPECT_EQ(unit.parameters()[1].init.kind, Init::Kind::zeros) << "the weight counts as weight + 1";
  EXPECT_EQ(unit.parameters()[3].init.kind, Init::Kind::zeros);
  EXPECT_THROW(Norm(unit, "bad", {.features = 4, .weight_offset = 0.5}), ShapeError);
  EXPECT_THROW(Norm(unit, "bad", {.kind = NormKind::layer, .features = 4, .weight_offset = 1}), ShapeError);
}

TEST(Norm, without_weights_it_lets_its_input_through) {
  const Context context = Context::reference();
  Tape tape(context, false);
  const Tensor x = ones(context, {2, 4});
  EXPECT_EQ(Norm()(tape, Tape::constant(x)).value.raw(), x.raw());
}

}  // namespace
}  // namespace nought
