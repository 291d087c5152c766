// Scales of 8-bit training: where they come from, and what the products of a layer then read.
#include "nought/autograd/fp8.h"

#include <cmath>

#include "support/local_store.h"
#include <gtest/gtest.h>

#include "nought/autograd/functions.h"
#include "nought/kernels/rounding.h"

namespace nought::fp8_test {
namespace {

using test::LocalStore;
using enum Fp8Recipe::Role;

Tensor filled(const Context& context, Shape shape, uint64_t seed, double scale) {
  Tensor x = context.empty(shape, DType::bf16);
  for (int64_t i = 0; i < x.numel(); ++i)
    x.data<bf16_t>()[i] = bf16_t(static_cast<float>(scale * normal_at(seed, static_cast<uint64_t>(i))));
  return x;
}

Tensor constant(const Context& context, float value) {
  Tensor x = context.empty({8}, DType::bf16);
  context.run(Fill{.x = x, .value = value});
  return x;
}

/// The scale that a kernel takes: of the host, or of a largest value on the device.
double scale_of(const Fp8Rounding& rounding) {
  return rounding.largest ? fp8_scale(rounding.largest.item(), rounding.format, rounding.margin) : rounding.scale;
}

TEST(Fp8, a_scale_is_the_power_of_two_that_brings_the_largest_value_just_below_the_formats) {
  const Context context = Context::cpu();
  Fp8Recipe recipe({.scaling = Fp8Scaling::current});
  const size_t layer = recipe.add_layer();
  for (const auto& [largest, expected] : {std::pair(448.0f, 1.0), std::pair(450.0f, 0.5), std::pair(1.0f, 256.0),
                                          std::pair(0.001f, 262144.0), std::pair(0.0f, 1.0)}) {
    const Fp8Rounding rounding = recipe.rounding(context, constant(context, largest), layer, input, true);
    EXPECT_EQ(scale_of(rounding), expected) << largest;
    EXPECT_EQ(rounding.format, Fp8::e4m3);
  }
  EXPECT_EQ(scale_of(recipe.rounding(context, constant(context, 57344), layer, gradient, true)), 1);
  EXPECT_EQ(recipe.rounding(context, constant(context, 57344), layer, gradient, true).format, Fp8::e5m2);
  Fp8Recipe careful({.scaling = Fp8Scaling::current, .margin = 2});
  EXPECT_EQ(scale_of(careful.rounding(context, constant(context, 1), careful.add_layer(), weight, true)), 64);
}

TEST(Fp8, delayed_scales_follow_the_largest_value_of_the_history) {
  const Context context = Context::cpu();
  Fp8Recipe recipe({.scaling = Fp8Scaling::delayed, .history = 2});
  const size_t layer = recipe.add_layer();
  const auto self = make_self_communicator();
  const auto scale_of_step = [&](float largest) {
    const double scale = scale_of(recipe.rounding(context, constant(context, largest), layer, input, true));
    recipe.finish_step(context.to_host<double>(recipe.take_maxima(context, *self)));
    return scale;
  };
  EXPECT_EQ(scale_of_step(1), 256);          // nothing is known: its own
  EXPECT_EQ(scale_of_step(4), 256);          // of the 1
  EXPECT_EQ(scale_of_step(1), 64);           // of 1 and 4
  EXPECT_EQ(scale_of_step(1), 64);           // of 4 and 1
  EXPECT_EQ(scale_of_step(HUGE_VALF), 256);  // of 1 and 1
  EXPECT_EQ(scale_of_step(1), 256);          // what is not finite is no history
  const std::vector<double> state = recipe.state();
  Fp8Recipe resumed({.scaling = Fp8Scaling::delayed, .history = 2});
  EXPECT_FALSE(resumed.restore(state)) << "it has no layers";
  resumed.add_layer();
  EXPECT_TRUE(resumed.restore(state));
  EXPECT_EQ(resumed.state(), state);
  EXPECT_FALSE(resumed.restore(std::vector<double>{3, 7}));
}

struct OneLinear final : Model {
  OneLinear() { w = add_unit("a").add("w", {16, 32}, Init::zeros()); }
  Var loss(Tape&, const Batch&, double) override { return {}; }
  ParameterView w;
};

TEST(Fp8, the_three_products_of_a_layer_read_rounded_factors) {
  const Context context = Context::cpu();
  OneLinear model;
  LocalStore store(context, model.units(), DType::bf16);
  const Tensor x = filled(context, {24, 32}, 1, 3), dy = filled(context, {24, 16}, 2, 1e-4),
               w = filled(context, {16, 32}, 3, 0.02);
  const auto recipe = std::make_shared<Fp8Recipe>(Fp8Options{.scaling = Fp8Scaling::current});
  const Fp8Layer layer{recipe, recipe->add_layer()};
  Tape tape(context);
  const Var in = tape.input(x);
  model.w.unit().store().before_forward(model.w.unit());
  context.copy(w.reshape({16, 32}), model.w.value());
  const Var y = linear(tape, in, model.w, {}, WeightLayout::out_in, layer);
  tape.backward(y, dy);

  const auto rounded = [&](const Tensor& t, Fp8Recipe::Role role) {
    return recipe->rounding(context, t, layer.index, role, false)(context, t);
  };
  const Tensor rx = rounded(x, input), rw = rounded(w, weight), rdy = rounded(dy, gradient);
  EXPECT_NE(rx.to_vector<float>(), x.to_vector<float>());
  const Tensor ey = context.empty({24, 16}, DType::bf16), edx = context.empty({24, 32}, DType::bf16),
               edw = context.empty({16, 32}, DType::bf16);
  context.run(MatMul{.a = rx, .b = rw, .c = ey, .transpose_b = true});
  context.run(MatMul{.a = rdy, .b = rw, .c = edx});
  context.run(MatMul{.a = rdy, .b = rx, .c = edw, .transpose_a = true});
  EXPECT_EQ(y.value.to_vector<float>(), ey.to_vector<float>());
  EXPECT_EQ(tape.gradient(in).to_vector<float>(), edx.to_vector<float>());
  EXPECT_EQ(store.flat_gradients(0).flat(0, 512).to_vector<float>(), edw.to_vector<float>());
}

}  // namespace
}  // namespace nought::fp8_test
