// The layers that are a product or a norm with weights of their own: what they declare, and what they compute.
#include "nought/nn/linear.h"

#include "support/local_store.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/autograd/fp8_options.h"
#include "nought/comm/thread.h"
#include "nought/nn/mlp.h"
#include "nought/nn/norm.h"
#include "nought/parallel/tensor_ranks.h"

namespace nought::linear_test {
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

/// What the products of a layer give, put together from the parts of all ranks.
struct Products {
  std::vector<double> y, dx, dw;
};

constexpr int64_t kTokens = 3, kFeatures = 16;

/// A matrix of which the columns (or rows) before the middle are so much larger than those behind it that one scale
/// leaves a few bits of the latter, and two scales would leave more.
Tensor uneven(const Context& context, uint64_t seed, double ratio, Interval rows, Interval columns, bool by_rows) {
  const Tensor x = context.empty({rows.size(), columns.size()}, DType::f32);
  float* element = x.data<float>();
  for (int64_t i = rows.begin; i < rows.end; ++i)
    for (int64_t j = columns.begin; j < columns.end; ++j) {
      const double size = (by_rows ? i : j) < kFeatures / 2 ? 1 : ratio;
      *element++ = static_cast<float>(size * normal_at(seed, static_cast<uint64_t>(i * kFeatures + j)));
    }
  return x;
}

/// Puts a part of [rows of all, kFeatures] where it belongs.
void place(const Tensor& part, Interval rows, Interval columns, std::vector<double>& all) {
  const std::vector<double> values = part.to_vector<double>();
  for (size_t k = 0; k < values.size(); ++k) {
    const auto at = static_cast<int64_t>(k);
    all[static_cast<size_t>((rows.begin + at / columns.size()) * kFeatures + columns.begin + at % columns.size())] =
        values[k];
  }
}

Products products_in_fp8(LinearCut cut, int size) {
  Products all;
  all.y.resize(kTokens * kFeatures), all.dx.resize(kTokens * kFeatures), all.dw.resize(kFeatures * kFeatures);
  run_ranks(size, [&](Communicator& world, const Context& context) {
    const Mesh mesh(world, {.tensor = size});
    const TensorRanks ranks(mesh);
    Unit unit("block");
    const Linear linear(unit, {.in = kFeatures,
                               .out = {kFeatures},
                               .names = {"w"},
                               .fp8 = std::make_shared<Fp8Recipe>(Fp8Options{.scaling = Fp8Scaling::current}),
                               .ranks = ranks,
                               .cut = cut});
    test::LocalStore store(context, unit, DType::f32);
    const bool cuts_outputs = cut == LinearCut::outputs;
    const Interval tokens{0, kTokens}, whole{0, kFeatures}, part = ranks.part(kFeatures);
    const Interval in = cuts_outputs ? whole : part, out = cuts_outputs ? part : whole;
    const Tensor w = uneven(context, 1, 0x1p-14, out, in, cuts_outputs);
    context.copy(w.reshape({w.numel()}), store.flat_values());
    Tape tape(context);
    const Var x = tape.input(uneven(context, 2, cuts_outputs ? 1 : 0x1p14, tokens, in, false));
    const Var y = linear(tape, x);
    const Tensor dy = uneven(context, 3, cuts_outputs ? 0x1p-29 : 1, tokens, out, false);
    const Tensor y_part = context.empty(y.value.shape(), DType::f32);
    context.copy(y.value, y_part);
    tape.backward(y, dy);
    if (cuts_outputs || world.rank() == 0) place(y_part, tokens, out, all.y);
    if (!cuts_outputs || world.rank() == 0) place(tape.gradient(x), tokens, in, all.dx);
    place(store.flat_gradients(), out, in, all.dw);
  });
  return all;
}

/// The grid of 8 bits that a rank rounds its part to is that of the whole tensor.
TEST(Linear, products_in_fp8_that_ranks_share_are_those_of_one_rank) {
  const auto expect_same = [](const std::vector<double>& shared, const std::vector<double>& alone, const char* what) {
    for (size_t i = 0; i < alone.size(); ++i)
      EXPECT_NEAR(shared[i], alone[i], 1e-5 * std::abs(alone[i]) + 1e-30) << what << "[" << i << "]";
  };
  for (const LinearCut cut : {LinearCut::outputs, LinearCut::inputs}) {
    SCOPED_TRACE(cut == LinearCut::outputs ? "outputs" : "inputs");
    const Products alone = products_in_fp8(cut, 1), shared = products_in_fp8(cut, 2);
    expect_same(shared.y, alone.y, "y");
    expect_same(shared.dx, alone.dx, "dx");
    expect_same(shared.dw, alone.dw, "dw");
  }
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
}  // namespace nought::linear_test
