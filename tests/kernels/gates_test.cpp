// Products with a sigmoid or a SiLU of a gate.
#include "support/kernel_test.h"

#include "nought/kernels/ops/activations.h"

namespace nought::gates_test {
namespace {

using namespace test;

class Gates : public KernelTest {};

TEST_F(Gates, and_their_gradients_are_those_of_the_reference) {
  for_each_instruction_set([&] {
    for (const DType dtype : kCpuDTypes)
      for (const GateKind kind : {GateKind::sigmoid, GateKind::silu})
        for (const int64_t n : {1, 37}) {
          const auto make = [&](uint64_t seed) { return random({n}, dtype, seed, 2); };
          const Gate op{.x = make(1), .gate = make(2), .y = make(3), .kind = kind};
          const GateBackward back{op.x, op.gate, make(4), make(5), make(6), kind};
          const Gate expected{wide(op.x), wide(op.gate), wide(op.y), kind};
          const GateBackward expected_back{expected.x,    expected.gate,     wide(back.dy),
                                           wide(back.dx), wide(back.d_gate), kind};
          run(op), reference::run(expected);
          run(back), reference::run(expected_back);
          expect_rounded(op.y, expected.y, 1e-5);
          expect_rounded(back.dx, expected_back.dx, 1e-5);
          expect_rounded(back.d_gate, expected_back.d_gate, 1e-5);
        }
  });
}

}  // namespace
}  // namespace nought::gates_test
