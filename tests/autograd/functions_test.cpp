#include "nought/autograd/functions.h"

#include "support/gradient_check.h"

namespace nought::functions_test {
namespace {

using test::GradientCheck;
using test::integers;
using test::LocalStore;
using test::numeric_gradient;
using test::random;

TEST(Functions, linear_has_the_right_gradients_in_both_layouts) {
  const Context context = Context::reference();
  for (const WeightLayout layout : {WeightLayout::out_in, WeightLayout::in_out}) {
    Unit unit("u");
    const bool out_in = layout == WeightLayout::out_in;
    const ParameterView weight = unit.add("w", out_in ? Shape{3, 5} : Shape{5, 3}, Init::zeros());
    const ParameterView bias = unit.add("b", {3}, Init::zeros());
    GradientCheck(context, unit, random(context, {4, 5}, 1), [&](Tape& tape, const Var& x) {
      return linear(tape, x, weight, bias, layout);
    }).run();
  }
}

TEST(Functions, a_parameter_used_twice_sums_its_gradients) {
  const Context context = Context::reference();
  Unit unit("u");
  const ParameterView weight = unit.add("w", {5, 5}, Init::zeros());
  GradientCheck(context, unit, random(context, {4, 5}, 1), [&](Tape& tape, const Var& x) {
    return linear(tape, linear(tape, x, weight, {}, WeightLayout::out_in), weight, {}, WeightLayout::in_out);
  }).run();
}

TEST(Functions, norms_and_residuals_have_the_right_gradients) {
  const Context context = Context::reference();
  {
    Unit unit("u");
    const ParameterView weight = unit.add("w", {6}, Init::ones());
    GradientCheck(context, unit, random(context, {3, 6}, 2), [&](Tape& tape, const Var& x) {
      return add(tape, x, rms_norm(tape, x, weight, 1e-3));
    }).run();
    Unit offset("u");
    const ParameterView around_one = offset.add("w", {6}, Init::zeros());
    GradientCheck(context, offset, random(context, {3, 6}, 2), [&](Tape& tape, const Var& x) {
      return scale(tape, rms_norm(tape, x, around_one, 1e-3, 1), 2.5);
    }).run();
  }
  {
    Unit unit("u");
    const ParameterView weight = unit.add("w", {6}, Init::ones()), bias = unit.add("b", {6}, Init::zeros());
    GradientCheck(context, unit, random(context, {3, 6}, 3), [&](Tape& tape, const Var& x) {
      return add(tape, layer_norm(tape, x, weight, bias, 1e-3), x);
    }).run();
  }
}

TEST(Functions, a_value_added_to_itself_has_twice_the_gradient) {
  const Context context = Context::reference();
  Unit unit("u");
  const ParameterView weight = unit.add("w", {6}, Init::ones());
  GradientCheck(context, unit, random(context, {3, 6}, 2), [&](Tape& tape, const Var& x) {
    const Var y = rms_norm(tape, x, weight, 1e-3);
    const Var doubled = add(tape, y, y);
    return add(tape, activate(tape, doubled, Activation::silu), activate(tape, doubled, Activation::gelu_tanh));
  }).run();
}

TEST(Functions, activations_have_the_right_gradients) {
  const Context context = Context::reference();
  for (const Activation activation :
       {Activation::gelu_erf, Activation::gelu_tanh, Activation::silu, Activation::relu}) {
    Unit unit("u");
    const ParameterView weight = unit.add("w", {6}, Init::ones());
    GradientCheck(context, unit, random(context, {3, 6}, 4), [&](Tape& tape, const Var& x) {
      return gated_activate(tape, activate(tape, rms_norm(tape, x, weight, 1e-3), activation), activation);
    }).run();
  }
}

TEST(Functions, embeddings_add_the_gradients_of_repeated_ids) {
  const Context context = Context::reference();
  Unit unit("u");
  const ParameterView tokens = unit.add("t", {5, 3}, Init::zeros()), places = unit.add("p", {4, 3}, Init::zeros());
  const ParameterView weight = unit.add("w", {3, 3}, Init::zeros());
  const Tensor ids = integers(context, {1, 4, 1, 1}), positions = integers(context, {0, 1, 2, 3});
  GradientCheck(context, unit, random(context, {4, 3}, 6), [&](Tape& tape, const Var& x) {
    const Var y = add_embedding(tape, embedding(tape, ids, tokens), positions, places);
    return add(tape, linear(tape, y, weight, {}, WeightLayout::out_in), x);
  }).run();
}

void expect_head_gradients(double softcap) {
  const Context context = Context::reference();
  Unit unit("u");
  const ParameterView weight = unit.add("w", {7, 5}, Init::zeros());
  const Tensor targets = integers(context, {0, -100, 6, 3});
  Tensor x = random(context, {4, 5}, 7);
  LocalStore store(context, unit, DType::f64);
  constexpr double kScale = 0.25;
  Tape tape(context);
  const Var in = tape.input(x);
  tape.backward(cross_entropy_head(tape, in, weight, targets, kScale, softcap));

  const auto loss = [&] {
    Tape forward(context, false);
    return cross_entropy_head(forward, Tape::constant(x), weight, targets, 1, softcap).value.item();
  };
  const auto check = [&](const Tensor& at, const Tensor& gradient) {
    const std::vector<double> numeric = numeric_gradient(at, loss);
    for (size_t i = 0; i < numeric.size(); ++i) EXPECT_NEAR(gradient.data<double>()[i], kScale * numeric[i], 1e-7) << i;
  };
  check(x, tape.gradient(in));
  check(store.flat_values(), store.flat_gradients());
}

TEST(Functions, cross_entropy_head_forms_scaled_gradients_and_ignores_masked_targets) { expect_head_gradients(0); }

TEST(Functions, cross_entropy_head_caps_its_logits) { expect_head_gradients(0.7); }

TEST(Functions, a_scaled_seed_of_the_head_is_refused) {
  const Context context = Context::reference();
  Unit unit("u");
  const ParameterView weight = unit.add("w", {7, 5}, Init::zeros());
  LocalStore store(context, unit, DType::f64);
  Tape tape(context);
  const Var loss = cross_entropy_head(tape, tape.input(random(context, {1, 5}, 7)), weight, integers(context, {2}), 1);
  Tensor seed = context.empty({1}, DType::f64);
  seed.data<double>()[0] = 2;
  EXPECT_THROW(tape.backward(loss, seed), Error);
}

}  // namespace
}  // namespace nought::functions_test
