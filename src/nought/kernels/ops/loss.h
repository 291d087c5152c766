// The loss of logits and its gradient.
#pragma once

#include "nought/kernels/operation.h"

namespace nought {

/// loss[i] = logsumexp(logits[i]) - logits[i, target[i]], 0 where target is ignore_index. logits: [n, V] float,
/// targets: [n] i32, loss: [n] f32 (f64 for f64). With `gradient`, logits become (softmax - onehot) * gradient_scale
/// (0 where ignored). Error if a target is neither ignore_index nor in [0, V).
struct CrossEntropy {
  Tensor logits, targets, loss;
  bool gradient = false;
  double gradient_scale = 1;
  int32_t ignore_index = -100;

  template <class V>
  void visit(V& v) const {
    v("targets", targets, kReads);
    v("loss", loss, kWrites);
    v("logits", logits, gradient ? kUpdates.becoming("gradient of the logits") : kReads);
    v("gradient", gradient);
    v("gradient_scale", gradient_scale);
    v("ignore_index", ignore_index);
  }
};

}  // namespace nought
