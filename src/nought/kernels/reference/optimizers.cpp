#include "nought/kernels/check.h"
#include "nought/kernels/reference/loops.h"

namespace nought::reference {
namespace {

/// Calls f(i, g) for every element, g being the scaled gradient in f64. States are f32 by contract; the arithmetic
/// between loading and storing them is f64, to be an oracle for fp32 kernels.
template <class F>
void for_each_gradient(const Tensor& gradient_tensor, double scale, F&& f) {
  visit_float(gradient_tensor.dtype(), [&](auto tag) {
    using G = typename decltype(tag)::type;
    const G* gradient = gradient_tensor.data<G>();
    for (int64_t i = 0; i < gradient_tensor.numel(); ++i)
      f(i, static_cast<double>(accumulator_t<G>{gradient[i]}) * scale);
  });
}

void copy_parameter(const Tensor& parameter, const Tensor& parameter_copy) {
  if (parameter_copy) run(Cast{.x = parameter, .y = parameter_copy});
}

}  // namespace

void run(const Adam& op) {
  check(op);
  float *parameter = op.parameter.data<float>(), *exp_avg = op.exp_avg.data<float>();
  float* exp_avg_sq = op.exp_avg_sq.data<float>();
  for_each_gradient(op.gradient, op.gradient_scale, [&](int64_t i, double g) {
    double p = parameter[i];
    if (op.decoupled_decay) {
      p *= 1 - op.lr * op.weight_decay;
    } else {
      g += op.weight_decay * p;
    }
    const double m = op.beta1 * exp_avg[i] + (1 - op.beta1) * g;
    const double v = op.beta2 * exp_avg_sq[i] + (1 - op.beta2) * g * g;
    exp_avg[i] = static_cast<float>(m);
    exp_avg_sq[i] = static_cast<float>(v);
    parameter[i] = static_cast<float>(p - op.lr / op.bias1 * m / (std::sqrt(v) / std::sqrt(op.bias2) + op.eps));
  });
  copy_parameter(op.parameter, op.parameter_copy);
}

void run(const Sgd& op) {
  check(op);
  float* parameter = op.parameter.data<float>();
  float* buffer = op.momentum_buffer ? op.momentum_buffer.data<float>() : nullptr;
  for_each_gradient(op.gradient, op.gradient_scale, [&](int64_t i, double g) {
    g += op.weight_decay * parameter[i];
    if (buffer != nullptr) {
      const double b = op.first ? g : op.momentum * buffer[i] + (1 - op.dampening) * g;
      buffer[i] = static_cast<float>(b);
      g = op.nesterov ? g + op.momentum * b : b;
    }
    parameter[i] = static_cast<float>(parameter[i] - op.lr * g);
  });
  copy_parameter(op.parameter, op.parameter_copy);
}

void run(const Adagrad& op) {
  check(op);
  float *parameter = op.parameter.data<float>(), *sum = op.sum.data<float>();
  for_each_gradient(op.gradient, op.gradient_scale, [&](int64_t i, double g) {
    g += op.weight_decay * parameter[i];
    const double s = sum[i] + g * g;
    sum[i] = static_cast<float>(s);
    parameter[i] = static_cast<float>(parameter[i] - op.lr * g / (std::sqrt(s) + op.eps));
  });
  copy_parameter(op.parameter, op.parameter_copy);
}

void run(const RmsProp& op) {
  check(op);
  float *parameter = op.parameter.data<float>(), *square = op.square.data<float>();
  for_each_gradient(op.gradient, op.gradient_scale, [&](int64_t i, double g) {
    g += op.weight_decay * parameter[i];
    const double s = op.alpha * square[i] + (1 - op.alpha) * g * g;
    square[i] = static_cast<float>(s);
    parameter[i] = static_cast<float>(parameter[i] - op.lr * g / (std::sqrt(s) + op.eps));
  });
  copy_parameter(op.parameter, op.parameter_copy);
}

void run(const Lion& op) {
  check(op);
  float *parameter = op.parameter.data<float>(), *exp_avg = op.exp_avg.data<float>();
  for_each_gradient(op.gradient, op.gradient_scale, [&](int64_t i, double g) {
    const double m = exp_avg[i], c = op.beta1 * m + (1 - op.beta1) * g;
    const double sign = c > 0 ? 1 : c < 0 ? -1 : c;  // NaN stays
    parameter[i] = static_cast<float>(parameter[i] * (1 - op.lr * op.weight_decay) - op.lr * sign);
    exp_avg[i] = static_cast<float>(op.beta2 * m + (1 - op.beta2) * g);
  });
  copy_parameter(op.parameter, op.parameter_copy);
}

void run(const LambDirection& op) {
  check(op);
  const float* parameter = op.parameter.data<float>();
  float *exp_avg = op.exp_avg.data<float>(), *exp_avg_sq = op.exp_avg_sq.data<float>();
  float* direction = op.direction.data<float>();
  for_each_gradient(op.gradient, op.gradient_scale, [&](int64_t i, double g) {
    const double m = op.beta1 * exp_avg[i] + (1 - op.beta1) * g;
    const double v = op.beta2 * exp_avg_sq[i] + (1 - op.beta2) * g * g;
    exp_avg[i] = static_cast<float>(m);
    exp_avg_sq[i] = static_cast<float>(v);
    direction[i] =
        static_cast<float>(m / op.bias1 / (std::sqrt(v / op.bias2) + op.eps) + op.weight_decay * parameter[i]);
  });
}

void run(const MomentumDirection& op) {
  check(op);
  float *buffer = op.momentum_buffer.data<float>(), *direction = op.direction.data<float>();
  for_each_gradient(op.gradient, op.gradient_scale, [&](int64_t i, double g) {
    const double b = op.momentum * buffer[i] + (1 - op.momentum) * g;
    buffer[i] = static_cast<float>(b);
    direction[i] = static_cast<float>(op.nesterov ? op.momentum * b + (1 - op.momentum) * g : b);
  });
}

void run(const ApplyDirection& op) {
  check(op);
  float* parameter = op.parameter.data<float>();
  const float* direction = op.direction.data<float>();
  const double step = op.taken_step();
  for (int64_t i = 0; i < op.parameter.numel(); ++i)
    parameter[i] = static_cast<float>(op.keep * parameter[i] - step * direction[i]);
  copy_parameter(op.parameter, op.parameter_copy);
}

void run(const CustomUpdate& op) {
  check(op);
  std::vector<float> gradient(static_cast<size_t>(op.parameter.numel()));
  for_each_gradient(op.gradient, op.gradient_scale,
                    [&](int64_t i, double g) { gradient[static_cast<size_t>(i)] = static_cast<float>(g); });
  std::vector<std::span<float>> states;
  for (const Tensor& state : op.states) states.push_back(state.span<float>());
  op.rule.update({op.parameter.span<float>(), gradient, states});
  copy_parameter(op.parameter, op.parameter_copy);
}

}  // namespace nought::reference
