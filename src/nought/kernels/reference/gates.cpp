#include <cmath>

#include "nought/kernels/check.h"
#include "nought/kernels/reference/loops.h"

namespace nought::reference {

void run(const Gate& op) {
  check(op);
  visit_float(op.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Real = accumulator_t<T>;
    for (int64_t i = 0; i < op.x.numel(); ++i) {
      const Real g = Real{op.gate.data<T>()[i]}, sigmoid = 1 / (1 + std::exp(-g));
      const Real factor = op.kind == GateKind::silu ? g * sigmoid : sigmoid;
      op.y.data<T>()[i] = rounded<T>(Real{op.x.data<T>()[i]} * factor);
    }
  });
}

void run(const GateBackward& op) {
  check(op);
  visit_float(op.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Real = accumulator_t<T>;
    for (int64_t i = 0; i < op.x.numel(); ++i) {
      const Real g = Real{op.gate.data<T>()[i]}, sigmoid = 1 / (1 + std::exp(-g)), dy = Real{op.dy.data<T>()[i]};
      const bool silu = op.kind == GateKind::silu;
      const Real slope = sigmoid * (1 - sigmoid), factor = silu ? g * sigmoid : sigmoid;
      op.d_gate.data<T>()[i] = rounded<T>(dy * Real{op.x.data<T>()[i]} * (silu ? sigmoid + g * slope : slope));
      op.dx.data<T>()[i] = rounded<T>(dy * factor);
    }
  });
}

}  // namespace nought::reference
