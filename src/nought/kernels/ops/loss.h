// Losses of logits and their gradients.
#pragma once

#include "nought/kernels/operation.h"

namespace nought {

/// loss[i] = (logsumexp(logits[i]) - logits[i, target[i]]) * weights[i], 0 where target is ignore_index or the weight
/// is 0. logits: [n, V] float, targets: [n] i32, weights: [n] f32, or undefined for 1, loss: [n] f32 (f64 for f64).
/// With `gradient`, logits become (softmax - onehot) * gradient_scale * weights[i] (0 where the loss is left out).
/// Error if a target is neither ignore_index nor in [0, V).
struct CrossEntropy {
  Tensor logits, targets, loss, weights = {};
  bool gradient = false;
  double gradient_scale = 1;
  int32_t ignore_index = -100;

  template <class V>
  void visit(V& v) const {
    v("targets", targets, kReads);
    v("weights", weights, kReads.if_defined());
    v("loss", loss, kWrites);
    v("logits", logits, gradient ? kUpdates.becoming("gradient of the logits") : kReads);
    v("gradient", gradient);
    v("gradient_scale", gradient_scale);
    v("ignore_index", ignore_index);
  }
};

/// loss[i] = the generalised Jensen-Shannon divergence (arXiv 2306.13649) of S = softmax(logits[i]) and T =
/// softmax(teacher[i]), 0 where target is ignore_index. beta 0: KL(T || S); beta 1: KL(S || T); between: with
/// M = (1 - beta) S + beta T, beta KL(T || M) + (1 - beta) KL(S || M). logits, teacher: [n, V] float, targets: [n] i32,
/// of which none but ignore_index means anything, loss: [n] f32 (f64 for f64). With `gradient`, logits become the
/// gradient of the loss times gradient_scale (0 where the loss is left out).
struct JensenShannon {
  Tensor logits, teacher, targets, loss;
  double beta = 0.5;
  bool gradient = false;
  double gradient_scale = 1;
  int32_t ignore_index = -100;

  template <class V>
  void visit(V& v) const {
    v("teacher", teacher, kReads);
    v("targets", targets, kReads);
    v("loss", loss, kWrites);
    v("logits", logits, gradient ? kUpdates.becoming("gradient of the logits") : kReads);
    v("beta", beta);
    v("gradient", gradient);
    v("gradient_scale", gradient_scale);
    v("ignore_index", ignore_index);
  }
};

}  // namespace nought
