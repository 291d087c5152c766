#include "nought/autograd/gates.h"

#include "nought/autograd/detail.h"

namespace nought {

Var gate(Tape& tape, const Var& x, const Var& gate, GateKind kind) {
  const Context& context = tape.context();
  const Tensor y = context.empty(x.value.shape(), x.value.dtype());
  context.run(Gate{.x = x.value, .gate = gate.value, .y = y, .kind = kind});
  return tape.record(y, {x, gate}, [x = Saved(x), gate = Saved(gate), kind](Gradients& gradients, const Tensor& dy) {
    const Context& context = gradients.context();
    const Tensor x_value = x.prepared(context)(context), gate_value = gate.prepared(context)(context);
    const Tensor dx = context.empty(x.shape, x.dtype), d_gate = context.empty(gate.shape, gate.dtype);
    context.run(GateBackward{.x = x_value, .gate = gate_value, .dy = dy, .dx = dx, .d_gate = d_gate, .kind = kind});
    gradients.give(Var{{}, x.slot}, dx);
    gradients.give(Var{{}, gate.slot}, d_gate);
  });
}

namespace {

/// Copies between rows of x, which have all columns, and of y, which have the parts side by side; adds to x.
void move_columns(const Context& context, const Tensor& x, const Tensor& y, const std::vector<HeadColumns>& parts,
                  bool into_x) {
  int64_t begin = 0;
  for (const HeadColumns& part : parts) {
    const Heads wide{x, part.begin, x.dim(-1), part.count > 1 ? part.stride : 0}, own{y, begin, y.dim(-1)};
    context.run(CopyHeads{.from = into_x ? own : wide,
                          .to = into_x ? wide : own,
                          .tokens = y.rows(),
                          .num_heads = part.count,
                          .head_dim = part.width,
                          .accumulate = into_x});
    begin += part.count * part.width;
  }
}

}  // namespace

Var pick_columns(Tape& tape, const Var& x, const std::vector<HeadColumns>& parts) {
  const Context& context = tape.context();
  int64_t width = 0;
  for (const HeadColumns& part : parts) width += part.count * part.width;
  const Tensor y = context.empty({x.value.rows(), width}, x.value.dtype());
  move_columns(context, x.value, y, parts, /*into_x=*/false);
  return tape.record(y, {x}, [slot = x.slot, shape = x.value.shape(), parts](Gradients& gradients, const Tensor& dy) {
    const Context& context = gradients.context();
    const Tensor dx = context.zeros(shape, dy.dtype());
    const int64_t columns = std::max<int64_t>(dy.numel() / std::max<int64_t>(dx.rows(), 1), 1);
    move_columns(context, dx, dy.reshape({dx.rows(), columns}), parts, /*into_x=*/true);
    gradients.give(Var{{}, slot}, dx);
  });
}

Var with_rows_of(Tape& tape, const Var& x, int64_t width) {
  return tape.record(x.value.reshape({x.value.numel() / width, width}), {x},
                     [slot = x.slot, shape = x.value.shape()](Gradients& gradients, const Tensor& d) {
                       gradients.give(Var{{}, slot}, d.reshape(shape));
                     });
}

}  // namespace nought
