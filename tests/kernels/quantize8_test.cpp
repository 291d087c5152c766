#include "support/kernel_test.h"

#include "nought/base/math.h"
#include "nought/kernels/dynamic_code.h"

namespace nought::quantize8_test {
namespace {

using namespace test;

class Quantized : public KernelTest {
 protected:
  Quantize8 quantize(const Tensor& x, int64_t block, bool is_signed) {
    const Quantize8 op{.x = x,
                       .codes = empty({x.numel()}, DType::u8),
                       .scales = empty({ceil_div(x.numel(), block)}, DType::f32),
                       .block = block,
                       .is_signed = is_signed};
    run(op);
    return op;
  }
  Tensor dequantize(const Quantize8& op) {
    const Tensor x = empty({op.x.numel()}, DType::f32);
    run(Dequantize8{.codes = op.codes, .scales = op.scales, .x = x, .block = op.block, .is_signed = op.is_signed});
    return x;
  }
  /// Values over many decades, as moments have them.
  Tensor moments(int64_t n, bool is_signed) {
    Tensor x = random({n}, DType::f32, 5);
    for (float& value : x.span<float>()) value = is_signed ? value * value * value : std::pow(value, 4.0f);
    return x;
  }
};

TEST_F(Quantized, maps_are_those_of_the_paper) {
  const auto& with_sign = DynamicCode::of(true).values();
  EXPECT_EQ(with_sign[255], 1.0f);
  EXPECT_EQ(with_sign[127], 0.0f);
  EXPECT_FLOAT_EQ(with_sign[0], -0.99296875f);  // the middle of the last of 64 parts of [0.1, 1]
  EXPECT_FLOAT_EQ(with_sign[254], 0.99296875f);
  EXPECT_FLOAT_EQ(with_sign[128], 0.55e-6f);  // the only part of the lowest decade
  const auto& without = DynamicCode::of(false).values();
  EXPECT_EQ(without[0], 0.0f);
  EXPECT_FLOAT_EQ(without[1], 0.325e-6f);  // the first of two parts of the lowest decade
  EXPECT_FLOAT_EQ(without[254], 0.996484375f);
  EXPECT_EQ(without[255], 1.0f);
}

TEST_F(Quantized, codes_are_the_nearest_ones_in_every_block) {
  for (const bool is_signed : {true, false})
    for (const int64_t n : {1, 31, 256, 257, 10000}) {
      const Quantize8 op = quantize(moments(n, is_signed), 256, is_signed);
      Quantize8 expected = op;
      expected.codes = empty({n}, DType::u8), expected.scales = empty({ceil_div(n, 256)}, DType::f32);
      reference::run(expected);
      expect_same_bits(op.codes, expected.codes);
      expect_same_bits(op.scales, expected.scales);
    }
}

TEST_F(Quantized, quantizing_again_changes_nothing) {
  for (const bool is_signed : {true, false}) {
    const Tensor once = dequantize(quantize(moments(20000, is_signed), 256, is_signed));
    expect_same_bits(dequantize(quantize(once, 256, is_signed)), once);
  }
}

TEST_F(Quantized, the_largest_element_of_a_block_is_exact_and_all_others_are_close) {
  const Tensor x = moments(5000, true), y = dequantize(quantize(x, 500, true));
  for (int64_t begin = 0; begin < 5000; begin += 500) {
    float largest = 0;
    for (int64_t i = begin; i < begin + 500; ++i) largest = std::max(largest, std::abs(x.data<float>()[i]));
    for (int64_t i = begin; i < begin + 500; ++i) {
      const float value = x.data<float>()[i];
      if (std::abs(value) == largest) {
        EXPECT_EQ(y.data<float>()[i], value);
      }
      EXPECT_NEAR(y.data<float>()[i], value, 0.0071 * largest);
    }
  }
}

TEST_F(Quantized, a_second_moment_that_is_not_zero_never_becomes_zero) {
  const Tensor y = dequantize(quantize(of<float>({1.0f, 1e-30f, 0.0f}), 256, false));
  EXPECT_EQ(y.data<float>()[0], 1.0f);
  EXPECT_GT(y.data<float>()[1], 0.0f);
  EXPECT_EQ(y.data<float>()[2], 0.0f);
}

TEST_F(Quantized, a_block_of_zeros_stays_zero) {
  for (const bool is_signed : {true, false}) {
    const Tensor zeros = of<float>(std::vector<float>(300));
    expect_same_bits(dequantize(quantize(zeros, 256, is_signed)), zeros);
  }
}

}  // namespace
}  // namespace nought::quantize8_test
