// whole_tensor(): the global tensor of a parameter from the parts that ranks hold: for exports and reports.
#pragma once

#include "nought/autograd/unit.h"
#include "nought/comm/mesh.h"
#include "nought/kernels/kernels.h"

namespace nought {

/// part: what this rank holds of the parameter, or of its gradient. Returns the global tensor: the part itself, shaped,
/// where nothing cuts it. All ranks call it together.
Tensor whole_tensor(const Context& context, const Mesh& mesh, const Parameter& parameter, const Tensor& part);

}  // namespace nought
