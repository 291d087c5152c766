#include "nought/autograd/short_conv.h"

#include "support/gradient_check.h"

#include "nought/autograd/functions.h"

namespace nought::short_conv_test {
namespace {

TEST(ShortConvFunction, has_the_gradients_of_x_and_of_its_parameters) {
  for (const bool gated : {false, true})
    for (const bool biased : {false, true}) {
      const Context context = Context::reference();
      Unit unit("u");
      const int64_t channels = 2, width = (gated ? 3 : 1) * channels;
      const ParameterView in = unit.add("in", {width, 4}, Init::zeros()),
                          weight = unit.add("w", {channels, 1, 3}, Init::zeros(), ParameterRole::filter),
                          bias =
                              biased ? unit.add("b", {channels}, Init::zeros(), ParameterRole::bias) : ParameterView();
      test::GradientCheck(context, unit, test::random(context, {6, 4}, 1), [&](Tape& tape, const Var& x) {
        const Var projected = linear(tape, x, in, {}, WeightLayout::out_in);
        return short_conv(tape, projected, weight, bias, gated, {{0, 4}, {4, 2}});
      }).run();
    }
}

TEST(ShortConvFunction, a_state_is_for_generation_alone) {
  const Context context = Context::reference();
  Tape tape(context);
  const Tensor states = context.empty({1, 2, 2}, DType::f64);
  EXPECT_THROW(short_conv(tape, Tape::constant(test::random(context, {6, 2}, 1)), {}, {}, false, {{0, 6}}, states),
               Error);
}

}  // namespace
}  // namespace nought::short_conv_test
