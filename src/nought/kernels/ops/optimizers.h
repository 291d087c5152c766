// One pass of each optimizer over a parameter, its states and its gradient.
//
// Parameters and states are f32 and of one size; the gradient has any float dtype; parameter_copy (optional) gets the
// parameter rounded to its own 16-bit dtype. Each element is updated by itself, so any interval can be updated alone.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "nought/kernels/operation.h"

namespace nought {

/// One pass of Adam (arXiv 1412.6980) or, with decoupled decay, AdamW (arXiv 1711.05101), as torch.optim computes it:
/// g = gradient * gradient_scale; [p *= 1 - lr * weight_decay | g += weight_decay * p]; m, v updated;
/// p -= lr / bias1 * m / (sqrt(v) / sqrt(bias2) + eps).
struct Adam {
  Tensor parameter, exp_avg, exp_avg_sq, gradient, parameter_copy = {};
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  double bias1 = 1, bias2 = 1;  // 1 - beta^step
  double gradient_scale = 1;
  bool decoupled_decay = true;

  template <class V>
  void visit(V& v) const {
    v("parameter", parameter, kUpdates);
    v("exp_avg", exp_avg, kUpdates);
    v("exp_avg_sq", exp_avg_sq, kUpdates);
    v("gradient", gradient, kReads);
    v("parameter_copy", parameter_copy, kWrites.if_defined());
    v("lr", lr);
    v("beta1", beta1);
    v("beta2", beta2);
    v("eps", eps);
    v("weight_decay", weight_decay);
    v("bias1", bias1);
    v("bias2", bias2);
    v("gradient_scale", gradient_scale);
    v("decoupled_decay", decoupled_decay);
  }
};

/// SGD as torch.optim.SGD computes it: g = gradient * gradient_scale + weight_decay * p; with a momentum_buffer b:
/// b = momentum * b + (1 - dampening) * g (the first step: b = g), and g becomes b, or g + momentum * b with nesterov;
/// p -= lr * g. momentum_buffer is undefined without momentum.
struct Sgd {
  Tensor parameter, momentum_buffer, gradient, parameter_copy = {};
  double lr = 1e-3, momentum = 0, dampening = 0, weight_decay = 0;
  double gradient_scale = 1;
  bool nesterov = false, first = false;

  template <class V>
  void visit(V& v) const {
    v("parameter", parameter, kUpdates);
    v("momentum_buffer", momentum_buffer, kUpdates.if_defined());
    v("gradient", gradient, kReads);
    v("parameter_copy", parameter_copy, kWrites.if_defined());
    v("lr", lr);
    v("momentum", momentum);
    v("dampening", dampening);
    v("weight_decay", weight_decay);
    v("gradient_scale", gradient_scale);
    v("nesterov", nesterov);
    v("first", first);
  }
};

/// Adagrad as torch.optim.Adagrad computes it: g = gradient * gradient_scale + weight_decay * p; sum += g^2;
/// p -= lr * g / (sqrt(sum) + eps).
struct Adagrad {
  Tensor parameter, sum, gradient, parameter_copy = {};
  double lr = 1e-2, eps = 1e-10, weight_decay = 0;
  double gradient_scale = 1;

  template <class V>
  void visit(V& v) const {
    v("parameter", parameter, kUpdates);
    v("sum", sum, kUpdates);
    v("gradient", gradient, kReads);
    v("parameter_copy", parameter_copy, kWrites.if_defined());
    v("lr", lr);
    v("eps", eps);
    v("weight_decay", weight_decay);
    v("gradient_scale", gradient_scale);
  }
};

/// RMSprop as torch.optim.RMSprop computes it: g = gradient * gradient_scale + weight_decay * p;
/// square = alpha * square + (1 - alpha) * g^2; p -= lr * g / (sqrt(square) + eps).
struct RmsProp {
  Tensor parameter, square, gradient, parameter_copy = {};
  double lr = 1e-2, alpha = 0.99, eps = 1e-8, weight_decay = 0;
  double gradient_scale = 1;

  template <class V>
  void visit(V& v) const {
    v("parameter", parameter, kUpdates);
    v("square", square, kUpdates);
    v("gradient", gradient, kReads);
    v("parameter_copy", parameter_copy, kWrites.if_defined());
    v("lr", lr);
    v("alpha", alpha);
    v("eps", eps);
    v("weight_decay", weight_decay);
    v("gradient_scale", gradient_scale);
  }
};

/// Lion (arXiv 2302.06675): p *= 1 - lr * weight_decay; p -= lr * sign(beta1 * m + (1 - beta1) * g);
/// m = beta2 * m + (1 - beta2) * g. exp_avg is m.
struct Lion {
  Tensor parameter, exp_avg, gradient, parameter_copy = {};
  double lr = 1e-4, beta1 = 0.9, beta2 = 0.99, weight_decay = 0;
  double gradient_scale = 1;

  template <class V>
  void visit(V& v) const {
    v("parameter", parameter, kUpdates);
    v("exp_avg", exp_avg, kUpdates);
    v("gradient", gradient, kReads);
    v("parameter_copy", parameter_copy, kWrites.if_defined());
    v("lr", lr);
    v("beta1", beta1);
    v("beta2", beta2);
    v("weight_decay", weight_decay);
    v("gradient_scale", gradient_scale);
  }
};

/// Lamb's direction before its trust ratio (arXiv 1904.00962): m, v updated as in Adam;
/// direction = m / bias1 / (sqrt(v / bias2) + eps) + weight_decay * p. direction: f32.
struct LambDirection {
  Tensor parameter, exp_avg, exp_avg_sq, gradient, direction;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  double bias1 = 1, bias2 = 1;  // 1 - beta^step, or 1 without bias correction
  double gradient_scale = 1;

  template <class V>
  void visit(V& v) const {
    v("parameter", parameter, kReads);
    v("exp_avg", exp_avg, kUpdates);
    v("exp_avg_sq", exp_avg_sq, kUpdates);
    v("gradient", gradient, kReads);
    v("direction", direction, kWrites);
    v("beta1", beta1);
    v("beta2", beta2);
    v("eps", eps);
    v("weight_decay", weight_decay);
    v("bias1", bias1);
    v("bias2", bias2);
    v("gradient_scale", gradient_scale);
  }
};

/// Muon's direction before it is orthogonalised: b = momentum * b + (1 - momentum) * g; direction = b, or with
/// nesterov momentum * b + (1 - momentum) * g. momentum_buffer is b; direction: f32.
struct MomentumDirection {
  Tensor momentum_buffer, gradient, direction;
  double momentum = 0.95, gradient_scale = 1;
  bool nesterov = true;

  template <class V>
  void visit(V& v) const {
    v("momentum_buffer", momentum_buffer, kUpdates);
    v("gradient", gradient, kReads);
    v("direction", direction, kWrites);
    v("momentum", momentum);
    v("gradient_scale", gradient_scale);
    v("nesterov", nesterov);
  }
};

/// p = keep * p - step * direction, all f32. With squares, [2] f64, the sums of squares of the whole parameter and of
/// its whole direction, the step is multiplied by Lamb's trust ratio: their norms' ratio between two bounds, as
/// DeepSpeed's FusedLamb bounds it, and 1 if one of them is zero.
struct ApplyDirection {
  Tensor parameter, direction, parameter_copy = {}, squares = {};
  double step = 1e-3, keep = 1;
  double least_ratio = 0.01, greatest_ratio = 10;

  /// Read by the kernel alone: squares lie on the device.
  double taken_step() const {
    if (!squares) return step;
    const double *sum = squares.data<double>(), ratio = std::sqrt(sum[0]) / std::sqrt(sum[1]);
    return sum[0] == 0 || sum[1] == 0 ? step : step * std::max(least_ratio, std::min(greatest_ratio, ratio));
  }

  template <class V>
  void visit(V& v) const {
    v("parameter", parameter, kUpdates);
    v("direction", direction, kReads);
    v("parameter_copy", parameter_copy, kWrites.if_defined());
    v("squares", squares, kReads.if_defined());
    v("step", step);
    v("keep", keep);
    v("least_ratio", least_ratio);
    v("greatest_ratio", greatest_ratio);
  }
};

/// Consecutive elements of one parameter, as an UpdateRule gets them: arrays of one length.
struct UpdatedElements {
  std::span<float> parameter;
  std::span<const float> gradient;  // times the gradient scale
  std::span<const std::span<float>> states;
};

/// An update that comes from outside (optim/custom_optimizer.h). It is called from several threads at once, and must
/// compute the same for an element in whatever stretch that comes.
struct UpdateRule {
  std::string name;  // in traces and messages
  std::function<void(const UpdatedElements&)> update;

  template <class V>
  void visit(V& v) const {
    v("rule", name);
  }
};

/// Runs a rule over all elements, stretch by stretch: it gets gradient * gradient_scale in f32, and updates parameter
/// and states in place. What it throws is thrown by run().
struct CustomUpdate {
  static constexpr size_t kMostStates = 8;
  Tensor parameter;
  std::vector<Tensor> states;
  Tensor gradient, parameter_copy = {};
  double gradient_scale = 1;
  UpdateRule rule = {};

  template <class V>
  void visit(V& v) const {
    v("parameter", parameter, kUpdates);
    v("states", states, kUpdates);
    v("gradient", gradient, kReads);
    v("parameter_copy", parameter_copy, kWrites.if_defined());
    v("gradient_scale", gradient_scale);
    v("rule", rule);
  }
};

}  // namespace nought
