#include "nought/autograd/pooling.h"

#include <cmath>

#include "support/gradient_check.h"

#include "nought/autograd/functions.h"

namespace nought::pooling_test {
namespace {

TEST(Pooling, mixes_rows_and_gives_each_its_share_of_the_gradient) {
  const Context context = Context::reference();
  Unit unit("u");
  const ParameterView weight = unit.add("w", {3, 4}, Init::zeros());
  const Tensor factors = test::random(context, {2, 5}, 3);
  test::GradientCheck(context, unit, test::random(context, {5, 4}, 1), [&](Tape& tape, const Var& x) {
    return mix_rows(tape, factors, linear(tape, x, weight, {}, WeightLayout::out_in));
  }).run();
}

TEST(Pooling, a_mean_is_a_mixture) {
  const Context context = Context::reference();
  Tape tape(context);
  const Tensor x = test::random(context, {2, 3}, 1), halves = context.empty({1, 2}, DType::f64);
  halves.data<double>()[0] = halves.data<double>()[1] = 0.5;
  const Tensor mean = mix_rows(tape, halves, Tape::constant(x)).value;
  ASSERT_EQ(mean.shape(), (Shape{1, 3}));
  for (int i = 0; i < 3; ++i)
    EXPECT_DOUBLE_EQ(mean.data<double>()[i], (x.data<double>()[i] + x.data<double>()[3 + i]) / 2);
}

TEST(Pooling, tanh_has_its_values_and_gradients) {
  const Context context = Context::reference();
  Unit unit("u");
  const ParameterView weight = unit.add("w", {3, 4}, Init::zeros());
  const Tensor x = test::random(context, {2, 4}, 1);
  test::GradientCheck(context, unit, x, [&](Tape& tape, const Var& in) {
    return tanh(tape, linear(tape, in, weight, {}, WeightLayout::out_in));
  }).run();
  Tape tape(context);
  const Tensor y = tanh(tape, Tape::constant(x)).value;
  for (int i = 0; i < x.numel(); ++i) EXPECT_NEAR(y.data<double>()[i], std::tanh(x.data<double>()[i]), 1e-12);
}

}  // namespace
}  // namespace nought::pooling_test
