// Every optimizer's kernel follows its reference on each instruction set, and does not depend on the number of threads.
#include "nought/kernels/ops/optimizers.h"

#include "support/kernel_test.h"
#include "support/size.h"

namespace nought::optimizers_test {
namespace {

using namespace test;

/// Calls f with the address of every tensor of an operation.
template <class F>
void each_tensor(Sgd& op, F f) {
  f(op.parameter), f(op.momentum_buffer), f(op.parameter_copy);
}
template <class F>
void each_tensor(Adagrad& op, F f) {
  f(op.parameter), f(op.sum), f(op.parameter_copy);
}
template <class F>
void each_tensor(RmsProp& op, F f) {
  f(op.parameter), f(op.square), f(op.parameter_copy);
}
template <class F>
void each_tensor(Lion& op, F f) {
  f(op.parameter), f(op.exp_avg), f(op.parameter_copy);
}
template <class F>
void each_tensor(LambDirection& op, F f) {
  f(op.parameter), f(op.exp_avg), f(op.exp_avg_sq), f(op.direction);
}
template <class F>
void each_tensor(MomentumDirection& op, F f) {
  f(op.momentum_buffer), f(op.direction);
}
template <class F>
void each_tensor(ApplyDirection& op, F f) {
  f(op.parameter), f(op.parameter_copy);
}
template <class F>
void each_tensor(CustomUpdate& op, F f) {
  f(op.parameter), f(op.parameter_copy);
  for (Tensor& state : op.states) f(state);
}

class Updates : public KernelTest {
 protected:
  Tensor state(int64_t n, uint64_t seed) { return random({n}, DType::f32, seed, 0.1); }
  Tensor squares(int64_t n) {
    Tensor x = state(n, 3);
    for (float& value : x.span<float>()) value *= value;
    return x;
  }
  Tensor gradient(int64_t n, DType dtype) { return random({n}, dtype, 4); }

  template <class Op>
  Op copied(Op op) {
    each_tensor(op, [&](Tensor& tensor) {
      if (tensor) tensor = clone(tensor);
    });
    return op;
  }

  /// make(n, gradient dtype, copy dtype) against the reference; `noise` allows for fp32 arithmetic.
  template <class Make>
  void expect_follows_the_reference(const Make& make, double noise = 1e-6) {
    for_each_instruction_set([&] {
      for (const DType dtype : {DType::f64, DType::f32, DType::bf16, DType::f16})
        for (const DType narrow : {DType::bf16, DType::f16})
          for (const int64_t n : {1, 3, 17, 257, 2049, 5000}) {
            auto op = make(n, dtype, narrow);
            auto expected = copied(op);
            run(op);
            reference::run(expected);
            std::vector<Tensor> wanted;
            each_tensor(expected, [&](Tensor& tensor) { wanted.push_back(tensor); });
            size_t i = 0;
            each_tensor(op, [&](Tensor& tensor) {
              const Tensor& want = wanted[i++];
              if (tensor && tensor.dtype() == DType::f32) expect_close(tensor, want, noise, noise);
            });
            if constexpr (requires { op.parameter_copy; }) {
              expect_same_bits(op.parameter_copy, converted(*memory_, op.parameter, narrow));
            }
          }
    });
    auto one = make(100003, DType::bf16, DType::bf16);
    auto four = copied(one);
    {
      ThreadCount guard(1);
      run(one);
    }
    ThreadCount guard(4);
    run(four);
    std::vector<Tensor> first;
    each_tensor(one, [&](Tensor& tensor) { first.push_back(tensor); });
    size_t i = 0;
    each_tensor(four, [&](Tensor& tensor) {
      if (tensor) expect_same_bits(tensor, first[i]);
      ++i;
    });
  }
};

NOUGHT_SIZE(medium);
TEST_F(Updates, sgd_follows_its_reference) {
  for (const bool momentum : {false, true})
    for (const bool first : {false, true})
      for (const bool nesterov : {false, true})
        expect_follows_the_reference([&](int64_t n, DType dtype, DType narrow) {
          return Sgd{.parameter = state(n, 1),
                     .momentum_buffer = momentum ? state(n, 2) : Tensor{},
                     .gradient = gradient(n, dtype),
                     .parameter_copy = empty({n}, narrow),
                     .lr = 0.1,
                     .momentum = 0.9,
                     .dampening = nesterov ? 0 : 0.2,
                     .weight_decay = 0.01,
                     .gradient_scale = 0.5,
                     .nesterov = nesterov,
                     .first = first};
        });
}

TEST_F(Updates, adagrad_follows_its_reference) {
  expect_follows_the_reference([&](int64_t n, DType dtype, DType narrow) {
    return Adagrad{.parameter = state(n, 1),
                   .sum = squares(n),
                   .gradient = gradient(n, dtype),
                   .parameter_copy = empty({n}, narrow),
                   .weight_decay = 0.01,
                   .gradient_scale = 0.5};
  });
}

TEST_F(Updates, rmsprop_follows_its_reference) {
  expect_follows_the_reference([&](int64_t n, DType dtype, DType narrow) {
    return RmsProp{.parameter = state(n, 1),
                   .square = squares(n),
                   .gradient = gradient(n, dtype),
                   .parameter_copy = empty({n}, narrow),
                   .alpha = 0.9,
                   .weight_decay = 0.01,
                   .gradient_scale = 0.5};
  });
}

TEST_F(Updates, lion_follows_its_reference) {
  expect_follows_the_reference([&](int64_t n, DType dtype, DType narrow) {
    return Lion{.parameter = state(n, 1),
                .exp_avg = state(n, 2),
                .gradient = gradient(n, dtype),
                .parameter_copy = empty({n}, narrow),
                .lr = 1e-2,
                .weight_decay = 0.1,
                .gradient_scale = 0.5};
  });
}

TEST_F(Updates, a_lion_without_gradient_and_momentum_does_not_move) {
  const Lion op{.parameter = of<float>({2}), .exp_avg = of<float>({0}), .gradient = of<float>({0}), .lr = 1};
  run(op);
  EXPECT_EQ(op.parameter.item(), 2);
}

TEST_F(Updates, lamb_direction_follows_its_reference) {
  expect_follows_the_reference(
      [&](int64_t n, DType dtype, DType) {
        return LambDirection{.parameter = state(n, 1),
                             .exp_avg = state(n, 2),
                             .exp_avg_sq = squares(n),
                             .gradient = gradient(n, dtype),
                             .direction = empty({n}, DType::f32),
                             .weight_decay = 0.01,
                             .bias1 = 0.2,
                             .bias2 = 0.01,
                             .gradient_scale = 0.5};
      },
      3e-6);
}

TEST_F(Updates, momentum_direction_follows_its_reference) {
  for (const bool nesterov : {false, true})
    expect_follows_the_reference([&](int64_t n, DType dtype, DType) {
      return MomentumDirection{.momentum_buffer = state(n, 1),
                               .gradient = gradient(n, dtype),
                               .direction = empty({n}, DType::f32),
                               .gradient_scale = 0.5,
                               .nesterov = nesterov};
    });
}

TEST_F(Updates, apply_direction_follows_its_reference) {
  expect_follows_the_reference([&](int64_t n, DType, DType narrow) {
    return ApplyDirection{.parameter = state(n, 1),
                          .direction = state(n, 2),
                          .parameter_copy = empty({n}, narrow),
                          .step = 0.3,
                          .keep = 0.99};
  });
}

TEST_F(Updates, a_custom_update_follows_its_reference) {
  const UpdateRule rule{.name = "rule", .update = [](const UpdatedElements& of) {
                          for (size_t i = 0; i < of.parameter.size(); ++i) {
                            of.states[1][i] = std::max(of.states[1][i], std::abs(of.gradient[i]));
                            of.states[0][i] = 0.5F * of.states[0][i] + of.gradient[i];
                            of.parameter[i] -= of.states[0][i] / (of.states[1][i] + 1);
                          }
                        }};
  expect_follows_the_reference([&](int64_t n, DType dtype, DType narrow) {
    return CustomUpdate{.parameter = state(n, 1),
                        .states = {state(n, 2), squares(n)},
                        .gradient = gradient(n, dtype),
                        .parameter_copy = empty({n}, narrow),
                        .gradient_scale = 0.3,
                        .rule = rule};
  });
}

TEST_F(Updates, what_a_custom_update_throws_leaves_the_threads) {
  const Tensor x = state(100000, 1);
  const CustomUpdate op{
      .parameter = x, .states = {}, .gradient = x, .rule = {.name = "none", .update = [](const UpdatedElements&) {
                                                              throw std::runtime_error("no update");
                                                            }}};
  EXPECT_THROW(run(op), std::runtime_error);
}

TEST_F(Updates, the_trust_ratio_is_clamped_and_one_for_what_is_zero) {
  const auto step = [&](double parameter, double direction) {
    const Tensor p = of<float>({1});
    run(ApplyDirection{.parameter = p,
                       .direction = of<float>({1}),
                       .squares = of<double>({parameter, direction}),
                       .step = 0.25,
                       .least_ratio = 0.5,
                       .greatest_ratio = 2});
    return (1 - p.data<float>()[0]) / 0.25;
  };
  EXPECT_EQ(step(9, 4), 1.5);
  EXPECT_EQ(step(100, 1), 2);
  EXPECT_EQ(step(1, 100), 0.5);
  EXPECT_EQ(step(0, 4), 1);
  EXPECT_EQ(step(4, 0), 1);
}

TEST_F(Updates, tensors_that_do_not_fit_are_refused) {
  const Tensor x = state(10, 1), shorter = state(9, 2);
  EXPECT_THROW(run(Sgd{.parameter = x, .momentum_buffer = shorter, .gradient = x}), ShapeError);
  EXPECT_THROW(run(Adagrad{.parameter = x, .sum = shorter, .gradient = x}), ShapeError);
  EXPECT_THROW(run(RmsProp{.parameter = x, .square = shorter, .gradient = x}), ShapeError);
  EXPECT_THROW(run(Lion{.parameter = x, .exp_avg = x, .gradient = shorter}), ShapeError);
  EXPECT_THROW(run(ApplyDirection{.parameter = x, .direction = shorter}), ShapeError);
  const UpdateRule rule{.name = "none", .update = [](const UpdatedElements&) {}};
  EXPECT_THROW(run(CustomUpdate{.parameter = x, .states = {shorter}, .gradient = x, .rule = rule}), ShapeError);
  EXPECT_THROW(run(CustomUpdate{.parameter = x, .states = {}, .gradient = shorter, .rule = rule}), ShapeError);
  EXPECT_THROW(run(CustomUpdate{.parameter = x, .states = {}, .gradient = x}), Error);
  EXPECT_THROW(run(Quantize8{.x = x, .codes = empty({10}, DType::u8), .scales = empty({2}, DType::f32)}), ShapeError);
}

}  // namespace
}  // namespace nought::optimizers_test
