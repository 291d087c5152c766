#include "nought/autograd/short_conv.h"

#include "nought/autograd/detail.h"

namespace nought {

Var short_conv(Tape& tape, const Var& x, const ParameterView& weight, const ParameterView& bias, bool gated,
               const std::vector<StateSpan>& spans, const Tensor& states) {
  require(!states || !tape.recording(), "a state of a convolution serves generation: it records nothing");
  const Context& context = tape.context();
  const Tensor y = context.empty(detail::with_features(x.value, weight.shape()[0]), x.value.dtype());
  context.run(ShortConv{.x = x.value,
                        .weight = weight.value(),
                        .y = y,
                        .bias = bias.defined() ? bias.value() : Tensor{},
                        .spans = spans,
                        .gated = gated,
                        .states = states});
  return tape.record(y, {x, weight, bias},
                     [x = Saved(x), weight, bias, gated, spans](Gradients& gradients, const Tensor& dy) {
                       const Context& context = gradients.context();
                       const Tensor value = x.prepared(context)(context);
                       const GradSink dx = detail::or_scratch(gradients, gradients.sink(x), value);
                       GradSink dw = gradients.sink(weight), db = gradients.sink(bias);
                       if (!dw) dw = detail::scratch_like(gradients, weight.value(), db.accumulate);
                       if (!db && bias.defined()) db = detail::scratch_like(gradients, bias.value(), dw.accumulate);
                       context.run(ShortConvBackward{.x = value,
                                                     .weight = weight.value(),
                                                     .dy = dy,
                                                     .dx = dx.into,
                                                     .d_weight = dw.into,
                                                     .bias = bias.defined() ? bias.value() : Tensor{},
                                                     .d_bias = db.into,
                                                     .spans = spans,
                                                     .gated = gated,
                                                     .accumulate_x = dx.accumulate,
                                                     .accumulate_weight = dw.accumulate});
                     });
}

}  // namespace nought
