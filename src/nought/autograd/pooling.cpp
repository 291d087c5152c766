#include "nought/autograd/pooling.h"

#include "nought/autograd/detail.h"

namespace nought {

Var mix_rows(Tape& tape, const Tensor& factors, const Var& x) {
  const Context& context = tape.context();
  const Tensor y = context.empty({factors.dim(0), x.value.dim(-1)}, x.value.dtype());
  context.run(MatMul{.a = factors, .b = x.value, .c = y});
  return tape.record(y, {x}, [x = Saved(x, false), factors](Gradients& gradients, const Tensor& dy) {
    if (GradSink dx = gradients.sink(x))
      gradients.context().run(
          MatMul{.a = factors, .b = dy, .c = dx.into, .transpose_a = true, .accumulate = dx.accumulate});
  });
}

Var tanh(Tape& tape, const Var& x) {
  const Context& context = tape.context();
  const Tensor y = context.empty(x.value.shape(), x.value.dtype());
  context.copy(x.value, y);
  context.run(Softcap{.x = y, .cap = 1});
  return tape.record(y, {x}, [x = Var{{}, x.slot}, y](Gradients& gradients, Tensor dy) {
    dy = detail::writable(gradients.context(), std::move(dy));
    gradients.context().run(SoftcapBackward{.y = y, .d = dy, .cap = 1});
    gradients.give(x, std::move(dy));
  });
}

}  // namespace nought
