#include "nought/autograd/delta_rule.h"

#include "nought/autograd/detail.h"

namespace nought {

Var delta_rule(Tape& tape, const Var& qkv, const Var& ba, const ParameterView& a_log, const ParameterView& dt_bias,
               const DeltaShape& shape, const std::vector<StateSpan>& spans, const Tensor& states) {
  require(!states || !tape.recording(), "a state of the delta rule serves generation: it records nothing");
  const Context& context = tape.context();
  const Tensor out = context.empty(detail::with_features(qkv.value, shape.values()), qkv.value.dtype());
  context.run(DeltaRule{.shape = shape,
                        .qkv = qkv.value,
                        .ba = ba.value,
                        .a_log = a_log.value(),
                        .dt_bias = dt_bias.value(),
                        .out = out,
                        .spans = spans,
                        .states = states});
  return tape.record(out, {qkv, ba, a_log, dt_bias},
                     [qkv, ba, a_log, dt_bias, shape, spans](Gradients& gradients, const Tensor& d_out) {
                       const Context& context = gradients.context();
                       const Tensor d_qkv = context.empty(qkv.value.shape(), qkv.value.dtype());
                       const Tensor d_ba = context.empty(ba.value.shape(), ba.value.dtype());
                       GradSink d_a = gradients.sink(a_log), d_dt = gradients.sink(dt_bias);
                       if (!d_a) d_a = detail::scratch_like(gradients, a_log.value(), d_dt.accumulate);
                       if (!d_dt) d_dt = detail::scratch_like(gradients, dt_bias.value(), d_a.accumulate);
                       context.run(DeltaRuleBackward{.shape = shape,
                                                     .qkv = qkv.value,
                                                     .ba = ba.value,
                                                     .a_log = a_log.value(),
                                                     .dt_bias = dt_bias.value(),
                                                     .d_out = d_out,
                                                     .d_qkv = d_qkv,
                                                     .d_ba = d_ba,
                                                     .d_a_log = d_a.into,
                                                     .d_dt_bias = d_dt.into,
                                                     .spans = spans,
                                                     .accumulate_weight = d_a.accumulate});
                       gradients.give(qkv, d_qkv);
                       gradients.give(ba, d_ba);
                     });
}

}  // namespace nought
