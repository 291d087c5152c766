// Signs with a scale and an error, preconditioning by second moments, and orthonormal rows.
#include "nought/kernels/ops/compression.h"

#include "support/kernel_test.h"
#include "support/size.h"

namespace nought::test::compression_test {
namespace {

using CompressionKernels = KernelTest;

Tensor squared(const Tensor& x) {
  for (float& value : x.span<float>()) value *= value;
  return x;
}

TEST_F(CompressionKernels, what_signs_stand_for_and_the_error_add_up_to_what_went_in) {
  for_each_instruction_set([&] {
    for (const int64_t n : {1, 7, 8, 9, 63, 64, 65, 1000, 70001}) {
      const Tensor x = random({n}, DType::f32, 1), before = random({n}, DType::f32, 2, 0.3), error = clone(before);
      const Tensor bits = empty({ceil_div(n, 8)}, DType::u8), scale = empty({1}, DType::f32);
      x.data<float>()[0] = -before.data<float>()[0];  // their sum is 0, whose sign is positive
      run(OneBitEncode{.x = x, .error = error, .bits = bits, .scale = scale});
      const Tensor y = empty({n}, DType::f32);
      run(OneBitDecode{.bits = bits, .scale = scale, .y = y});
      const float s = scale.data<float>()[0];
      double squares = 0;
      for (int64_t i = 0; i < n; ++i) {
        const float u = before.data<float>()[i] + x.data<float>()[i];
        squares += static_cast<double>(u) * u;
        ASSERT_EQ(y.data<float>()[i], u >= 0 ? s : -s) << i << " of " << n;
        ASSERT_NEAR(y.data<float>()[i] + error.data<float>()[i], u, 1e-6 * (1 + s)) << i << " of " << n;
      }
      EXPECT_NEAR(s, std::sqrt(squares / static_cast<double>(n)), 1e-6 * s);
      if (n % 8 != 0) {
        EXPECT_EQ(bits.data<uint8_t>()[n / 8] >> (n % 8), 0) << "bits behind the last";
      }
    }
  });
}

NOUGHT_SIZE(medium);
TEST_F(CompressionKernels, signs_follow_their_reference_on_any_number_of_threads) {
  for_each_instruction_set([&] {
    for (const int64_t n : {3, 129, 70001, 200003}) {
      OneBitEncode op{.x = random({n}, DType::f32, 3),
                      .error = random({n}, DType::f32, 4),
                      .bits = empty({ceil_div(n, 8)}, DType::u8),
                      .scale = empty({1}, DType::f32)};
      OneBitEncode expected = op, alone = op;
      expected.error = clone(op.error), expected.bits = clone(op.bits), expected.scale = clone(op.scale);
      alone.error = clone(op.error), alone.bits = clone(op.bits), alone.scale = clone(op.scale);
      run(op);
      {
        const ThreadCount one(1);
        run(alone);
      }
      reference::run(expected);
      expect_same_bits(op.bits, expected.bits);
      expect_close(op.scale, expected.scale, 1e-6, 0);
      expect_close(op.error, expected.error, 1e-6, 1e-6);
      expect_same_bits(op.scale, alone.scale);
      expect_same_bits(op.error, alone.error);
      const Tensor y = random({n}, DType::f32, 5), wanted = clone(y);
      run(OneBitDecode{.bits = op.bits, .scale = op.scale, .y = y, .factor = 0.25, .accumulate = true});
      reference::run(OneBitDecode{.bits = op.bits, .scale = op.scale, .y = wanted, .factor = 0.25, .accumulate = true});
      expect_same_bits(y, wanted);
    }
  });
}

TEST_F(CompressionKernels, preconditioning_follows_its_reference_and_leaves_out_what_had_no_gradient) {
  for_each_instruction_set([&] {
    for (const int64_t n : {1, 5, 33, 4099})
      for (const bool multiply : {false, true}) {
        const Tensor x = random({n}, DType::f32, 6), second = squared(random({n}, DType::f32, 7));
        second.data<float>()[n / 2] = 0;
        const Tensor y = empty({n}, DType::f32), expected = empty({n}, DType::f32);
        run(Precondition{.x = x, .second_moment = second, .y = y, .eps = 1e-3, .multiply = multiply});
        reference::run(Precondition{.x = x, .second_moment = second, .y = expected, .eps = 1e-3, .multiply = multiply});
        expect_close(y, expected, 1e-6, 1e-6);
        EXPECT_EQ(y.data<float>()[n / 2], 0);
      }
  });
}

TEST_F(CompressionKernels, the_greatest_ratio_follows_its_reference) {
  for_each_instruction_set([&] {
    for (const int64_t n : {1, 5, 33, 70001}) {
      const Tensor a = squared(random({n}, DType::f32, 8)), b = squared(random({n}, DType::f32, 9));
      const Tensor out = empty({1}, DType::f32), expected = empty({1}, DType::f32);
      run(GreatestRatio{.a = a, .b = b, .out = out, .eps = 1e-4});
      reference::run(GreatestRatio{.a = a, .b = b, .out = expected, .eps = 1e-4});
      expect_close(out, expected, 1e-5, 0);
    }
  });
}

double dot(const Tensor& x, int64_t i, int64_t j) {
  const int64_t n = x.dim(1);
  double sum = 0;
  for (int64_t k = 0; k < n; ++k) sum += static_cast<double>(x.data<float>()[i * n + k]) * x.data<float>()[j * n + k];
  return sum;
}

TEST_F(CompressionKernels, rows_become_orthonormal_and_dependent_ones_zero_or_new) {
  for (const bool draws : {false, true}) {
    const Tensor x = random({4, 50}, DType::f32, 10);
    float* row = x.data<float>();
    for (int64_t k = 0; k < 50; ++k) row[100 + k] = 2 * row[k] - 3 * row[50 + k];  // the third is of the first two
    run(Orthonormalize{.x = x, .key = 5, .draws = draws});
    for (int64_t i = 0; i < 4; ++i)
      for (int64_t j = 0; j <= i; ++j)
        EXPECT_NEAR(dot(x, i, j), i == j && (draws || i != 2) ? 1 : 0, 1e-5) << i << ", " << j << ", draws " << draws;
  }
  const Tensor zero = Tensor::zeros(*memory_, {3, 2}, DType::f32, Category::activations);
  run(Orthonormalize{.x = zero, .key = 5, .draws = true});
  EXPECT_NEAR(dot(zero, 0, 0), 1, 1e-6);
  EXPECT_NEAR(dot(zero, 0, 1), 0, 1e-6);
  EXPECT_EQ(dot(zero, 2, 2), 0) << "there are no three directions in a plane";
}

}  // namespace
}  // namespace nought::test::compression_test
