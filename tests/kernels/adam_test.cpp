#include "support/kernel_test.h"
#include "support/size.h"

namespace nought::adam_test {
namespace {

using namespace test;

class Optimizer : public KernelTest {
 protected:
  Adam make(int64_t n, DType gradient_dtype, bool decoupled) {
    Tensor exp_avg_sq = random({n}, DType::f32, 3, 0.1);
    for (float& v : exp_avg_sq.span<float>()) v *= v;
    return {.parameter = random({n}, DType::f32, 1),
            .exp_avg = random({n}, DType::f32, 2, 0.1),
            .exp_avg_sq = exp_avg_sq,
            .gradient = random({n}, gradient_dtype, 4),
            .lr = 0.01,
            .weight_decay = 0.1,
            .bias1 = 1 - std::pow(0.9, 3),
            .bias2 = 1 - std::pow(0.999, 3),
            .gradient_scale = 0.5,
            .decoupled_decay = decoupled};
  }
  Adam copied(Adam op) {
    op.parameter = clone(op.parameter), op.exp_avg = clone(op.exp_avg), op.exp_avg_sq = clone(op.exp_avg_sq);
    if (op.parameter_copy) op.parameter_copy = clone(op.parameter_copy);
    return op;
  }
};

TEST_F(Optimizer, first_step_moves_by_the_learning_rate) {  // bias correction makes m / sqrt(v) the gradient's sign
  Adam op = make(100, DType::f32, true);
  for (Tensor t : {op.exp_avg, op.exp_avg_sq}) zero(t);
  op.weight_decay = 0, op.eps = 0, op.bias1 = 1 - op.beta1, op.bias2 = 1 - op.beta2;
  Tensor before = clone(op.parameter);
  run(op);
  for (int64_t i = 0; i < 100; ++i) {
    const float sign = op.gradient.data<float>()[i] > 0 ? 1.0f : -1.0f;
    EXPECT_NEAR(before.data<float>()[i] - op.parameter.data<float>()[i], 0.01f * sign, 1e-6);
  }
}

TEST_F(Optimizer, three_steps_follow_the_published_recurrence) {
  // p = 1, gradients 0.5, -1, 2, lr 0.1, betas (0.9, 0.99), eps 1e-3, decay 0.1,
  // in double precision.
  for (bool decoupled : {true, false}) {
    double p = 1, m = 0, v = 0;
    Adam op{.parameter = of<float>({1}),
            .exp_avg = of<float>({0}),
            .exp_avg_sq = of<float>({0}),
            .gradient = {},
            .lr = 0.1,
            .beta1 = 0.9,
            .beta2 = 0.99,
            .eps = 1e-3,
            .weight_decay = 0.1,
            .decoupled_decay = decoupled};
    int step = 0;
    for (float gradient : {0.5f, -1.0f, 2.0f}) {
      ++step;
      double g = gradient;
      decoupled ? p *= 1 - 0.1 * 0.1 : g += 0.1 * p;
      m = 0.9 * m + 0.1 * g;
      v = 0.99 * v + 0.01 * g * g;
      op.bias1 = 1 - std::pow(0.9, step), op.bias2 = 1 - std::pow(0.99, step);
      p -= 0.1 * (m / op.bias1) / (std::sqrt(v / op.bias2) + 1e-3);
      op.gradient = of<float>({gradient});
      run(op);
      EXPECT_NEAR(op.parameter.item(), p, 1e-6);
    }
  }
}

NOUGHT_SIZE(medium);
TEST_F(Optimizer, state_is_fp32_accurate_and_the_copy_is_the_parameter_rounded) {
  for_each_instruction_set([&] {
    for (DType gradient : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
      for (DType copy_dtype : {DType::f32, DType::bf16, DType::f16}) {
        for (bool decoupled : {true, false}) {
          for (int64_t n : {1, 3, 17, 33, 257, 1000, 2049, 5000}) {
            Adam op = make(n, gradient, decoupled);
            op.parameter_copy = empty({n}, copy_dtype);
            Adam expected = copied(op);
            run(op);
            reference::run(expected);
            expect_close(op.exp_avg, expected.exp_avg, 3e-7, 1e-7);
            expect_close(op.exp_avg_sq, expected.exp_avg_sq, 5e-7, 1e-12);
            expect_close(op.parameter, expected.parameter, 3e-7, 3e-7);
            expect_same_bits(op.parameter_copy, converted(*memory_, op.parameter, copy_dtype));
          }
        }
      }
    }
  });
}

NOUGHT_SIZE(medium);
TEST_F(Optimizer, does_not_depend_on_the_number_of_threads) {
  Adam first = make(100003, DType::bf16, true);
  for (int threads : {1, 2, 4}) {
    ThreadCount guard(threads);
    Adam op = make(100003, DType::bf16, true);
    run(op);
    if (threads == 1) first = op;
    expect_same_bits(op.parameter, first.parameter);
    expect_same_bits(op.exp_avg, first.exp_avg);
    expect_same_bits(op.exp_avg_sq, first.exp_avg_sq);
  }
}

TEST_F(Optimizer, tensors_that_do_not_fit_are_refused) {
  Adam op = make(10, DType::f32, true);
  op.exp_avg = empty({9}, DType::f32);
  EXPECT_THROW(run(op), ShapeError);
  op = make(10, DType::f32, true);
  op.parameter_copy = empty({9}, DType::bf16);
  EXPECT_THROW(run(op), ShapeError);
}

}  // namespace
}  // namespace nought::adam_test
