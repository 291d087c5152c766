// The differentiable gated delta rule (kernels/ops/delta_rule.h).
#pragma once

#include <vector>

#include "nought/autograd/tape.h"

namespace nought {

/// qkv: [tokens, q | k | v], ba: [tokens, b | a] -> [tokens, values]. `states` are for a tape that does not record: the
/// sequences are continued from there.
Var delta_rule(Tape& tape, const Var& qkv, const Var& ba, const ParameterView& a_log, const ParameterView& dt_bias,
               const DeltaShape& shape, const std::vector<StateSpan>& spans, const Tensor& states = {});

}  // namespace nought
