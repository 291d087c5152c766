#include "nought/autograd/magnitudes.h"

#include <algorithm>

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
            const GradSink into = gradients.sink(each.magnitude);
            if (!into) continue;
            const Tensor part = sums.flat(each.begin, each.end);
            into.accumulate ? context.run(AddTo{.x = part, .into = into.into})
                            : context.run(Cast{.x = part, .y = into.into});
          }
        }
        if (const GradSink into = gradients.sink(bias)) context.run(SumRows{dy, into.into, into.accumulate});
        if (const GradSink dx = gradients.sink(x))
          context.run(ScaleColumns{
              .x = dy, .factors = of.factors, .y = dx.into, .offset = offset, .accumulate = dx.accumulate});
      });
}

Var drop(Tape& tape, const Var& x, const LowRankDropout& dropout) {
  const auto run = [dropout](const Context& context, const Tensor& from, const GradSink& to) {
    context.run(Dropout{.x = from,
                        .rows = dropout.rows,
                        .y = to.into,
                        .key = dropout.key,
                        .probability = dropout.probability,
                        .first_column = dropout.first_column,
                        .accumulate = to.accumulate});
  };
  const Tensor y = tape.context().empty(x.value.shape(), x.value.dtype());
  run(tape.context(), x.value, {y, false});
  return tape.record(y, {x}, [x = Saved(x, false), run](Gradients& gradients, const Tensor& dy) {
    if (const GradSink dx = gradients.sink(x)) run(gradients.context(), dy, dx);
  });
}

}  // namespace nought
