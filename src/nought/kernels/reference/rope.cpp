#include "nought/kernels/check.h"
#include "nought/kernels/reference/loops.h"

namespace nought::reference {

void run(const Rope& op) {
  check(op);
  visit_float(op.x.base.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Real = accumulator_t<T>;
    const int64_t pairs = op.rotary_dim / 2;
    for (int64_t token = 0; token < op.positions.numel(); ++token) {
      const int64_t position = op.positions.data<int32_t>()[token];
      const Real *cos = op.cos.data<Real>() + position * pairs, *sin = op.sin.data<Real>() + position * pairs;
      for (int64_t head = 0; head < op.num_heads; ++head) {
        T* x = op.x.base.data<T>() + op.x.at(token, head, op.head_dim);
        for (int64_t i = 0; i < pairs; ++i) {
          T &first = op.interleaved ? x[2 * i] : x[i], &second = op.interleaved ? x[2 * i + 1] : x[i + pairs];
          const Real a{first}, b{second}, s = op.inverse ? -sin[i] : sin[i];
          first = static_cast<T>(a * cos[i] - b * s);
          second = static_cast<T>(b * cos[i] + a * s);
        }
      }
    }
  });
}

}  // namespace nought::reference
