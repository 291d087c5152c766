#include "nought/kernels/check.h"
#include "nought/kernels/reference/loops.h"

namespace nought::reference {

void run(const Dropout& op) {
  check(op);
  visit_float(op.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Real = accumulator_t<T>;
    const T* x = op.x.data<T>();
    T* y = op.y.data<T>();
    const int64_t n = op.x.dim(-1);
    const Real scale = static_cast<Real>(1 / (1 - op.probability));
    for (int64_t i = 0; i < op.x.numel(); ++i) {
      const auto column = static_cast<uint64_t>(op.first_column + i % n);
      const auto row = static_cast<uint64_t>(op.rows.data<int64_t>()[i / n]);
      const uint16_t bits = random_bits16(philox(op.key, column / 8, row), column);
      const Real value = bits < op.threshold() ? Real{0} : Real{x[i]} * scale;
      y[i] = static_cast<T>(op.accumulate ? Real{y[i]} + value : value);
    }
  });
}

}  // namespace nought::reference
