#include "nought/kernels/check.h"
#include "nought/kernels/reference/loops.h"

namespace nought::reference {

// The state is f32 by contract; the arithmetic between loading and storing it is f64, to be an oracle for fp32 kernels.
void run(const Adam& op) {
  check(op);
  float *parameter = op.parameter.data<float>(), *exp_avg = op.exp_avg.data<float>();
  float* exp_avg_sq = op.exp_avg_sq.data<float>();
  visit_float(op.gradient.dtype(), [&](auto tag) {
    using G = typename decltype(tag)::type;
    const G* gradient = op.gradient.data<G>();
    for (int64_t i = 0; i < op.parameter.numel(); ++i) {
      double p = parameter[i];
      double g = static_cast<double>(accumulator_t<G>{gradient[i]}) * op.gradient_scale;
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
    }
  });
  if (op.parameter_copy) run(Cast{.x = op.parameter, .y = op.parameter_copy});
}

}  // namespace nought::reference
