// What the differentiable functions share.
#pragma once

#include "nought/autograd/tape.h"

namespace nought::detail {

/// The tensor itself if nobody else holds it, otherwise a copy that may be overwritten.
inline Tensor writable(const Context& context, Tensor tensor) {
  if (tensor.unique()) return tensor;
  Tensor own = context.empty(tensor.shape(), tensor.dtype());
  copy(tensor, own);
  return own;
}

/// [rows of x, features].
inline Shape with_features(const Tensor& x, int64_t features) { return {x.rows(), features}; }

}  // namespace nought::detail
