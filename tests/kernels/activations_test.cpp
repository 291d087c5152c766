#include "nought/kernels/ops/activations.h"

#include "support/kernel_test.h"

namespace nought::activations_test {
namespace {

using namespace test;

constexpr Activation kActivations[]{Activation::gelu_erf, Activation::gelu_tanh, Activation::silu, Activation::relu};

class Activations : public KernelTest {};

TEST_F(Activations, reference_matches_known_values) {
  const std::vector<double> x{-3, -1, 0, 0.5, 2};
  // x * (1 + erf(x / sqrt 2)) / 2 and x / (1 + e^-x) to 12 digits; tanh-GELU from its definition.
  const std::vector<double> gelu{-0.00404969409489, -0.158655253931, 0, 0.345731230635, 1.95449973610};
  const std::vector<double> silu{-0.142277619533, -0.268941421370, 0, 0.311229665601, 1.76159415596};
  Tensor input = of(x), y = empty({5}, DType::f64);
  reference::run(Activate{.x = input, .y = y, .activation = Activation::gelu_erf});
  expect_close(y, of(gelu), 1e-10, 1e-14);
  reference::run(Activate{.x = input, .y = y, .activation = Activation::silu});
  expect_close(y, of(silu), 1e-10, 1e-14);
  reference::run(Activate{.x = input, .y = y, .activation = Activation::relu});
  expect_close(y, of(std::vector<double>{0, 0, 0, 0.5, 2}), 0, 0);
  reference::run(Activate{.x = input, .y = y, .activation = Activation::gelu_tanh});
  for (size_t i = 0; i < x.size(); ++i) {
    const double u = std::sqrt(2 / std::numbers::pi) * (x[i] + 0.044715 * x[i] * x[i] * x[i]);
    EXPECT_NEAR(y.to_vector<double>()[i], 0.5 * x[i] * (1 + std::tanh(u)), 1e-14);
  }
}

TEST_F(Activations, are_rounded_once) {
  for_each_instruction_set([&] {
    for (Activation activation : kActivations) {
      for (DType dtype : kCpuDTypes) {
        for (int64_t n : {1, 3, 7, 17, 31, 33, 64, 100, 257, 1003}) {
          Tensor x = random({n}, dtype, 1, 3), y = empty({n}, dtype), expected = empty({n}, DType::f64);
          run(Activate{.x = x, .y = y, .activation = activation});
          reference::run(Activate{.x = wide(x), .y = expected, .activation = activation});
          expect_rounded(y, expected, 5e-6);
          Tensor dy = random({n}, dtype, 2, 3);
          reference::run(ActivateBackward{.x = wide(x), .dy = wide(dy), .dx = expected, .activation = activation});
          run(ActivateBackward{.x = x, .dy = dy, .dx = dy, .activation = activation});  // in place
          expect_rounded(dy, expected, 1e-5);
        }
      }
    }
  });
}

TEST_F(Activations, gated_are_rounded_once) {
  for_each_instruction_set([&] {
    for (Activation activation : kActivations) {
      for (DType dtype : kCpuDTypes) {
        for (int64_t rows : {1, 3, 17}) {
          for (int64_t n : {1, 7, 33, 64, 257}) {
            Tensor gate_up = random({rows, 2 * n}, dtype, 1, 3), y = empty({rows, n}, dtype),
                   dy = random({rows, n}, dtype, 2, 3);
            Tensor expected = empty({rows, n}, DType::f64), expected_d = empty({rows, 2 * n}, DType::f64);
            run(GatedActivate{.gate_up = gate_up, .y = y, .activation = activation});
            reference::run(GatedActivate{.gate_up = wide(gate_up), .y = expected, .activation = activation});
            expect_rounded(y, expected, 3e-5);
            Tensor d = empty({rows, 2 * n}, dtype);
            run(GatedActivateBackward{.gate_up = gate_up, .dy = dy, .d_gate_up = d, .activation = activation});
            reference::run(GatedActivateBackward{
                .gate_up = wide(gate_up), .dy = wide(dy), .d_gate_up = expected_d, .activation = activation});
            expect_rounded(d, expected_d, 1.5e-4);
          }
        }
      }
    }
  });
}

TEST_F(Activations, keep_fp32_accuracy_over_the_whole_line) {
  // The normal distribution and the sigmoid, each divided out of x * f(x): 10 units in the last place, tails included.
  std::vector<float> x;
  for (float v = -11; v < 11; v += 0.00137f) x.push_back(v);
  const auto n = static_cast<int64_t>(x.size());
  Tensor input = of(x), y = empty({n}, DType::f32), expected = empty({n}, DType::f64);
  for_each_instruction_set([&] {
    const bool fused = hwy::SupportedTargets() <= HWY_AVX2;  // without multiply-add, x^2 / 2 is rounded: e^60 suffers
    for (Activation activation : kActivations) {
      run(Activate{.x = input, .y = y, .activation = activation});
      reference::run(Activate{.x = wide(input), .y = expected, .activation = activation});
      const bool in_exponent = activation == Activation::gelu_tanh || !fused;
      expect_close(y, expected, in_exponent ? 3e-5 : 6e-7, 1e-36);
    }
  });
}

TEST_F(Activations, of_every_bf16_are_rounded_once) {
  std::vector<bf16_t> codes;
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto code = std::bit_cast<bf16_t>(static_cast<uint16_t>(i));
    if (std::abs(float{code}) <= 1e4f) codes.push_back(code);
  }
  const auto n = static_cast<int64_t>(codes.size());
  Tensor x = of(codes), dy = empty({n}, DType::bf16), y = empty({n}, DType::bf16), expected = empty({n}, DType::f64);
  run(Fill{.x = dy, .value = 1});
  for_each_instruction_set([&] {
    for (Activation activation : kActivations) {
      run(Activate{.x = x, .y = y, .activation = activation});
      reference::run(Activate{.x = wide(x), .y = expected, .activation = activation});
      expect_rounded(y, expected, 5e-6);
      run(ActivateBackward{.x = x, .dy = dy, .dx = y, .activation = activation});
      reference::run(ActivateBackward{.x = wide(x), .dy = wide(dy), .dx = expected, .activation = activation});
      expect_rounded(y, expected, 1e-6);
    }
  });
}

TEST_F(Activations, do_not_depend_on_the_place_in_a_tensor) {
  // Ties, of which gate * up has many where the gate's sigmoid is 1, go the same way in whole and in partial vectors.
  std::vector<bf16_t> values;
  for (int i = 0; i < 256; ++i) values.push_back(bf16_t(64 + 0.5f * static_cast<float>(i % 128)));
  for_each_instruction_set([&] {
    for (int64_t n : {1, 7, 8, 15, 17, 33, 63, 100}) {
      Tensor one = of(values), y = empty({1, 128}, DType::bf16), part = empty({1, n}, DType::bf16);
      run(GatedActivate{.gate_up = one.reshape({1, 256}), .y = y});
      Tensor few = empty({1, 2 * n}, DType::bf16);
      copy(one.flat(0, n), few.flat(0, n)), copy(one.flat(128, 128 + n), few.flat(n, 2 * n));
      run(GatedActivate{.gate_up = few, .y = part});
      expect_same_bits(part.flat(0, n), y.flat(0, n));
    }
  });
}

TEST_F(Activations, of_bf16_keep_nan) {
  for_each_instruction_set([&] {
    for (Activation activation : kActivations) {
      Tensor x = random({67}, DType::bf16, 1), dy = random({67}, DType::bf16, 2), y = empty({67}, DType::bf16),
             dx = empty({67}, DType::bf16);
      for (const int64_t i : {0, 1, 31, 40, 66}) x.data<bf16_t>()[i] = bf16_t(std::nanf(""));
      run(Activate{.x = x, .y = y, .activation = activation});
      run(ActivateBackward{.x = x, .dy = dy, .dx = dx, .activation = activation});
      const auto in = x.to_vector<float>(), values = y.to_vector<float>(), slopes = dx.to_vector<float>();
      for (size_t i = 0; i < 67; ++i) {
        EXPECT_EQ(std::isnan(values[i]), std::isnan(in[i])) << i;
        EXPECT_EQ(std::isnan(slopes[i]), std::isnan(in[i])) << i;
      }
    }
  });
}

TEST_F(Activations, saturate_and_keep_nan) {
  const std::vector<float> x{1e4f, 300, 100, -100, -300, -1e4f, std::nanf("")};
  Tensor input = of(x), y = empty({7}, DType::f32), dx = empty({7}, DType::f32);
  const std::vector<float> ones(7, 1.0f);
  for_each_instruction_set([&] {
    for (Activation activation : kActivations) {
      run(Activate{.x = input, .y = y, .activation = activation});
      run(ActivateBackward{.x = input, .dy = of(ones), .dx = dx, .activation = activation});
      for (size_t i = 0; i < 6; ++i) {
        EXPECT_NEAR(y.data<float>()[i], std::max(x[i], 0.0f), 1e-20);
        EXPECT_NEAR(dx.data<float>()[i], i < 3 ? 1 : 0, 1e-20);
      }
      EXPECT_TRUE(std::isnan(y.data<float>()[6]));
      EXPECT_TRUE(std::isnan(dx.data<float>()[6]));
    }
  });
}

TEST_F(Activations, gradients_match_central_differences) {
  for (Activation activation : kActivations) {
    Tensor x = random({40}, DType::f64, 1, 3), dy = random({40}, DType::f64, 2, 3), y = empty({40}, DType::f64);
    Tensor dx = empty({40}, DType::f64);
    reference::run(ActivateBackward{.x = x, .dy = dy, .dx = dx, .activation = activation});
    EXPECT_LE(gradient_error(x, dx,
                             [&] {
                               reference::run(Activate{.x = x, .y = y, .activation = activation});
                               return dot(y, dy);
                             }),
              1e-6);
    Tensor gate_up = random({5, 16}, DType::f64, 3, 3), d = empty({5, 16}, DType::f64);
    reference::run(GatedActivateBackward{.gate_up = gate_up, .dy = dy, .d_gate_up = d, .activation = activation});
    EXPECT_LE(gradient_error(gate_up, d,
                             [&] {
                               reference::run(GatedActivate{.gate_up = gate_up, .y = y, .activation = activation});
                               return dot(y, dy);
                             }),
              1e-6);
  }
}

TEST_F(Activations, do_not_depend_on_the_number_of_threads) {
  Tensor gate_up = random({333, 514}, DType::bf16, 1, 3), dy = random({333, 257}, DType::bf16, 2, 3), first;
  for (int threads : {1, 2, 4}) {
    ThreadCount guard(threads);
    Tensor d = empty({333, 514}, DType::bf16);
    run(GatedActivateBackward{.gate_up = gate_up, .dy = dy, .d_gate_up = d});
    run(Activate{.x = d, .y = d});
    if (!first) first = d;
    expect_same_bits(d, first);
  }
}

}  // namespace
}  // namespace nought::activations_test
