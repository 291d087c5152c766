#include "nought/kernels/check.h"
#include "nought/kernels/reference/loops.h"

namespace nought::reference {

void run(const Softcap& op) {
  check(op);
  visit_float(op.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Sum = accumulator_t<T>;
    const Sum cap = static_cast<Sum>(op.cap);
    for (T& x : op.x.span<T>()) x = static_cast<T>(cap * std::tanh(Sum{x} / cap));
  });
}

void run(const SoftcapBackward& op) {
  check(op);
  visit_float(op.y.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Sum = accumulator_t<T>;
    const T* y = op.y.data<T>();
    T* d = op.d.data<T>();
    for (int64_t i = 0; i < op.y.numel(); ++i) {
      const Sum t = Sum{y[i]} / static_cast<Sum>(op.cap);
      d[i] = static_cast<T>(Sum{d[i]} * (1 - t * t));
    }
  });
}

}  // namespace nought::reference
