#include "nought/kernels/check.h"
#include "nought/kernels/reference/loops.h"

namespace nought::reference {

void run(const CopyHeads& op) {
  check(op);
  visit_float(op.to.base.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Sum = accumulator_t<T>;
    for (int64_t t = 0; t < op.tokens; ++t) {
      for (int64_t h = 0; h < op.num_heads; ++h) {
        const T* from = op.from.base.data<T>() + op.from.at(t, op.broadcast ? 0 : h, op.head_dim);
        T* to = op.to.base.data<T>() + op.to.at(t, h, op.head_dim);
        for (int64_t i = 0; i < op.head_dim; ++i) {
          to[i] = op.accumulate ? static_cast<T>(Sum{to[i]} + Sum{from[i]}) : from[i];
        }
      }
    }
  });
}

void run(const SumHeads& op) {
  check(op);
  visit_float(op.to.base.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Sum = accumulator_t<T>;
    const T* from = op.from.base.data<T>();
    for (int64_t t = 0; t < op.tokens; ++t) {
      T* to = op.to.base.data<T>() + op.to.at(t, 0, op.head_dim);
      for (int64_t i = 0; i < op.head_dim; ++i) {
        Sum sum = 0;
        for (int64_t h = 0; h < op.num_heads; ++h) sum += Sum{from[op.from.at(t, h, op.head_dim) + i]};
        to[i] = static_cast<T>(sum);
      }
    }
  });
}

}  // namespace nought::reference
