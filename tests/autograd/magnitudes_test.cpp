// Outputs that are multiplied by magnitudes, and the gradients of that.
#include "nought/autograd/magnitudes.h"

#include <array>

#include "support/gradient_check.h"

namespace nought::magnitudes_test {
namespace {

constexpr int64_t kIn = 4, kOut = 5, kTokens = 3;

/// The factors of columns [1, 4) are magnitudes over norms, which count as constants.
ColumnFactors factors_of(const Context& context, const ParameterView& magnitude) {
  const ColumnFactors of{context.upload<double>({kOut}, std::array<double, kOut>{1, 0, 0, 0, 1}),
                         context.upload<double>({kOut}, std::array<double, kOut>{1, 2, 3, 0.5, 1})};
  for (int64_t i = 1; i < 4; ++i)
    of.factors.data<double>()[i] = magnitude.value().data<double>()[i - 1] / of.norms.data<double>()[i];
  return of;
}

TEST(ScaleColumns, has_the_gradients_of_x_of_magnitudes_and_of_the_bias) {
  for (const double offset : {0.0, 1.0}) {
    const Context context = Context::reference();
    Unit unit("u");
    const ParameterView w = unit.add("w", {kOut, kIn}, Init::zeros()), magnitude = unit.add("m", {3}, Init::zeros()),
                        bias = unit.add("b", {kOut}, Init::zeros());
    test::GradientCheck(context, unit, test::random(context, {kTokens, kIn}, 1), [&](Tape& tape, const Var& x) {
      return scale_columns(tape, linear(tape, x, w, {}, WeightLayout::out_in), factors_of(context, magnitude),
                           {{magnitude, 1, 4}}, bias, offset);
    }).run();
  }
}

TEST(Drop, has_no_gradient_of_what_is_dropped) {
  const Context context = Context::reference();
  Unit unit("u");
  const ParameterView w = unit.add("w", {kOut, kIn}, Init::zeros());
  const LowRankDropout dropout{
      .probability = 0.5, .key = 3, .rows = context.upload<int64_t>({kTokens}, std::array<int64_t, kTokens>{7, 8, 9})};
  test::GradientCheck(context, unit, test::random(context, {kTokens, kIn}, 1), [&](Tape& tape, const Var& x) {
    return linear(tape, drop(tape, x, dropout), w, {}, WeightLayout::out_in);
  }).run();
}

}  // namespace
}  // namespace nought::magnitudes_test
