#include "nought/autograd/functions.h"

#include <cmath>
#include <numeric>

#include "local_store.h"
#include <gtest/gtest.h>

namespace nought {
namespace {

using testing::LocalStore;

Tensor random(const Context& context, Shape shape, uint64_t seed) {
  Tensor tensor = context.empty(shape, DType::f64);
  for (int64_t i = 0; i < tensor.numel(); ++i) tensor.data<double>()[i] = normal_at(seed, static_cast<uint64_t>(i));
  return tensor;
}

Tensor integers(const Context& context, std::vector<int32_t> values) {
  return Tensor::of<int32_t>(*context.memory, {static_cast<int64_t>(values.size())}, std::span<const int32_t>(values));
}

/// Compares the gradients of sum(weights * f(x; parameters)) by x and by every parameter with central differences.
class GradientCheck {
 public:
  using Function = std::function<Var(Tape&, const Var&)>;

  GradientCheck(const Context& context, Unit& unit, Tensor x, Function f)
      : context_(context), store_(context, unit, DType::f64), x_(std::move(x)), f_(std::move(f)) {}

  void run() {
    Tape tape(context_);
    // In-place functions overwrite their input, so every evaluation gets its own copy.
    const Var x = tape.input(fresh_copy());
    const Var y = f_(tape, x);
    weights_ = random(context_, y.value.shape(), 77);
    tape.backward(y, weights_);
    compare(tape.gradient(x), x_, "x");
    compare(store_.flat_gradients(), store_.flat_values(), "parameters");
  }

 private:
  Tensor fresh_copy() const {
    Tensor own = context_.empty(x_.shape(), x_.dtype());
    copy(x_, own);
    return own;
  }
  double evaluate() {
    Tape tape(context_, false);
    const Tensor y = f_(tape, Tape::constant(fresh_copy())).value;
    return std::inner_product(y.data<double>(), y.data<double>() + y.numel(), weights_.data<double>(), 0.0);
  }
  void compare(const Tensor& gradient, const Tensor& at, const char* what) {
    const std::vector<double> analytic = gradient.to_vector<double>();
    constexpr double kStep = 1e-5;
    for (int64_t i = 0; i < at.numel(); ++i) {
      double& value = at.data<double>()[i];
      const double saved = value;
      value = saved + kStep;
      const double above = evaluate();
      value = saved - kStep;
      const double below = evaluate();
      value = saved;
      const double numeric = (above - below) / (2 * kStep);
      ASSERT_NEAR(analytic[static_cast<size_t>(i)], numeric, 1e-6 * std::max(1.0, std::abs(numeric)))
          << what << "[" << i << "]";
    }
  }

  const Context& context_;
  LocalStore store_;
  Tensor x_, weights_;
  Function f_;
};

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
  for (const Activation activation : {Activation::gelu_erf, Activation::gelu_tanh, Activation::silu}) {
    Unit unit("u");
    const ParameterView weight = unit.add("w", {6}, Init::ones());
    GradientCheck(context, unit, random(context, {3, 6}, 4), [&](Tape& tape, const Var& x) {
      return gated_activate(tape, activate(tape, rms_norm(tape, x, weight, 1e-3), activation), activation);
    }).run();
  }
}

TEST(Functions, rope_and_attention_have_the_right_gradients) {
  const Context context = Context::reference();
  const PackedHeads heads{.num_heads = 4, .num_kv_heads = 2, .head_dim = 6};
  Tensor positions = integers(context, {0, 1, 2, 3, 4, 0, 1, 2, 3, 4});
  RopeTables tables{.cos = random(context, {5, 2}, 8), .sin = random(context, {5, 2}, 9), .rotary_dim = 4};
  for (int64_t i = 0; i < 10; ++i) {  // any angles, as long as they rotate
    const double angle = 0.3 * static_cast<double>(i);
    tables.cos.data<double>()[i] = std::cos(angle), tables.sin.data<double>()[i] = std::sin(angle);
  }
  for (const int64_t window : {0, 2}) {
    Unit unit("u");
    const ParameterView weight = unit.add("w", {heads.width(), 7}, Init::zeros());
    GradientCheck(context, unit, random(context, {10, 7}, 5), [&](Tape& tape, const Var& x) {
      const Var qkv = rope(tape, linear(tape, x, weight, {}, WeightLayout::out_in), heads, tables, positions);
      return attention(tape, qkv, heads, {.batch = 2, .length = 5, .scale = 0.4, .window = window});
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

TEST(Functions, cross_entropy_head_forms_scaled_gradients_and_ignores_masked_targets) {
  const Context context = Context::reference();
  Unit unit("u");
  const ParameterView weight = unit.add("w", {7, 5}, Init::zeros());
  const Tensor targets = integers(context, {0, -100, 6, 3});
  Tensor x = random(context, {4, 5}, 7);
  LocalStore store(context, unit, DType::f64);
  constexpr double kScale = 0.25;
  Tape tape(context);
  const Var in = tape.input(x);
  tape.backward(cross_entropy_head(tape, in, weight, targets, kScale));

  const auto loss = [&] {
    Tape forward(context, false);
    return cross_entropy_head(forward, Tape::constant(x), weight, targets, 1).value.item();
  };
  const auto check = [&](const Tensor& at, const Tensor& gradient) {
    for (int64_t i = 0; i < at.numel(); ++i) {
      double& value = at.data<double>()[i];
      const double saved = value;
      value = saved + 1e-5;
      const double above = loss();
      value = saved - 1e-5;
      const double below = loss();
      value = saved;
      EXPECT_NEAR(gradient.data<double>()[i], kScale * (above - below) / 2e-5, 1e-7) << i;
    }
  };
  check(x, tape.gradient(in));
  check(store.flat_values(), store.flat_gradients());
}

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
}  // namespace nought
