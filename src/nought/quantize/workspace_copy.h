// workspace_copy(): a tensor's values in memory of its own, for what changes them on trial.
#pragma once

#include "nought/kernels/kernels.h"

namespace nought {

/// What it holds in f32, in its shape.
inline Tensor workspace_copy(const Context& context, const Tensor& tensor) {
  const Tensor copy = context.empty(tensor.shape(), DType::f32, Category::workspace);
  context.copy(tensor, copy);
  return copy;
}

}  // namespace nought
