#include "nought/autograd/magnitudes.h"

#include <algorithm>

#include "nought/autograd/detail.h"

namespace nought {

Var scale_columns(Tape& tape, const Var& x, const ColumnFactors& of, const std::vector<MagnitudeColumns>& columns,
                  const ParameterView& bias, double offset) {
  const Context& context = tape.context();
  const Tensor y = context.empty(x.value.shape(), x.value.dtype());
  context.run(ScaleColumns{
      .x = x.value, .factors = of.factors, .y = y, .bias = bias.defined() ? bias.value() : Tensor{}, .offset = offset});
  const bool trained =
      std::ranges::any_of(columns, [](const MagnitudeColumns& each) { return each.magnitude.trained(); });
  return tape.record(
      y, {x, bias, Wanted(trained)},
      [x = Saved(x, trained), of, columns, bias, offset, trained](Gradients& gradients, const Tensor& dy) {
        const Context& context = gradients.context();
        if (trained) {
          const Tensor sums = context.empty(of.norms.shape(), of.norms.dtype(), Category::workspace);
          context.run(DotColumns{.a = dy, .b = x.prepared(context)(context), .out = sums, .divisors = of.norms});
          for (const MagnitudeColumns& each : columns) {
            if (const GradSink into = gradients.sink(each.magnitude))
              detail::put(context, sums.flat(each.begin, each.end), into);
          }
        }
        if (const GradSink into = gradients.sink(bias)) context.run(SumRows{dy, into.into, into.accumulate});
        if (const GradSink dx = gradients.sink(x))
          context.run(ScaleColumns{
              .x = dy, .factors = of.factors, .y = dx.into, .offset = offset, .accumulate = dx.accumulate});
      });
}

Var drop(Tape& tape, const Var& x, const LowRankDropout& dropout) {
  const Tensor y = tape.context().empty(x.value.shape(), x.value.dtype());
  dropout.run(tape.context(), x.value, {y});
  return tape.record(y, {x}, [x = Saved(x, false), dropout](Gradients& gradients, const Tensor& dy) {
    if (const GradSink dx = gradients.sink(x)) dropout.run(gradients.context(), dy, dx);
  });
}

}  // namespace nought
