// The differentiable short causal convolution of each channel (kernels/ops/short_conv.h).
#pragma once

#include <vector>

#include "nought/autograd/tape.h"

namespace nought {

/// gated: x is [b | c | x] and the result c * conv(b * x); otherwise silu(conv(x)). bias may be undefined. `states` are
/// for a tape that does not record: the sequences are continued from there.
Var short_conv(Tape& tape, const Var& x, const ParameterView& weight, const ParameterView& bias, bool gated,
               const std::vector<StateSpan>& spans, const Tensor& states = {});

}  // namespace nought
