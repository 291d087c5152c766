// What the differentiable functions share.
#pragma once

#include "nought/autograd/tape.h"
#include "nought/autograd/weight_view.h"

namespace nought::detail {

/// The tensor itself if nobody else holds it, otherwise a copy that may be overwritten.
inline Tensor writable(const Context& context, Tensor tensor) {
  if (tensor.unique()) return tensor;
  Tensor own = context.empty(tensor.shape(), tensor.dtype());
  context.copy(tensor, own);
  return own;
}

/// [rows of x, features].
inline Shape with_features(const Tensor& x, int64_t features) { return {x.rows(), features}; }

/// A sink in the shape and dtype of x that nobody reads: the kernels of norms form all gradients, wanted or not.
inline GradSink scratch_like(const Gradients& gradients, const Tensor& x, bool accumulate = false) {
  const Context& context = gradients.context();
  const Tensor into = context.empty(x.shape(), x.dtype(), Category::workspace);
  if (accumulate) context.zero(into);
  return {into, accumulate};
}
/// The sink, or one for what nobody wants.
inline GradSink or_scratch(const Gradients& gradients, const GradSink& sink, const Tensor& x) {
  return sink ? sink : scratch_like(gradients, x);
}

}  // namespace nought::detail
