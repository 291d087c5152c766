#include "nought/kernels/check.h"
#include "nought/kernels/head_codes.h"
#include "nought/kernels/reference/loops.h"

namespace nought::reference {

void run(const CopyHeads& op) {
  check(op);
  visit_floats(op.from.base.dtype(), op.to.base.dtype(), [&](auto from_tag, auto to_tag) {
    using From = typename decltype(from_tag)::type;
    using To = typename decltype(to_tag)::type;
    using Sum = accumulator_t<To>;
    for (int64_t t = 0; t < op.tokens; ++t) {
      for (int64_t h = 0; h < op.num_heads; ++h) {
        const From* from = op.from.base.data<From>() + op.from.at(t, op.broadcast ? 0 : h, op.head_dim);
        To* to = op.to.base.data<To>() + op.to.at(t, h, op.head_dim);
        for (int64_t i = 0; i < op.head_dim; ++i) {
          if constexpr (std::is_same_v<From, To>) {
            to[i] = op.accumulate ? static_cast<To>(Sum{to[i]} + Sum{from[i]}) : from[i];
          } else {
            to[i] = rounded<To>(static_cast<accumulator_t<From>>(from[i]));
          }
        }
      }
    }
  });
}

void run(const EncodeHeads& op) {
  check(op);
  encode_heads(op, {0, op.tokens});
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
