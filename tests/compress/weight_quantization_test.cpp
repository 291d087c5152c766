// Which bits a step has, and what it does to weights.
#include "nought/compress/weight_quantization.h"

#include <vector>

#include <gtest/gtest.h>

#include "nought/base/error.h"

namespace nought::weight_quantization_test {
namespace {

const WeightGroup kGroup{.name = "wq1", .modules = {"proj"}, .bits = {.start_bits = 8, .target_bits = 5, .period = 10}};

TEST(WeightQuantization, bits_fall_from_the_schedules_offset_on) {
  const WeightQuantization quantization{.schedule_offset = 100};
  const auto bits_at = [&](int64_t updates) {
    const auto rounding = quantization.rounding_at(kGroup, updates);
    return rounding ? rounding->quantizer.bits : 0;
  };
  EXPECT_EQ(bits_at(0), 0);
  EXPECT_EQ(bits_at(99), 0);
  EXPECT_EQ(bits_at(100), 8);
  EXPECT_EQ(bits_at(108), 8);
  EXPECT_EQ(bits_at(109), 7);
  EXPECT_EQ(bits_at(119), 6);
  EXPECT_EQ(bits_at(139), 5);
  EXPECT_EQ(bits_at(100'000), 5);
}

TEST(WeightQuantization, in_the_forward_pass_the_target_holds_at_once) {
  const WeightQuantization quantization{.schedule_offset = 3, .in_forward = true};
  EXPECT_FALSE(quantization.rounding_at(kGroup, 2));
  EXPECT_EQ(quantization.rounding_at(kGroup, 3)->quantizer.bits, 5);
}

TEST(WeightQuantization, a_mixed_weight_is_whole_again_where_a_bit_goes) {
  const WeightQuantization quantization{.mixed_change = 0.25};
  const auto share = [&](int64_t step) { return quantization.rounding_at(kGroup, step - 1)->unquantized_share; };
  EXPECT_DOUBLE_EQ(share(1), 0.75);
  EXPECT_DOUBLE_EQ(share(4), 0);
  EXPECT_DOUBLE_EQ(share(9), 0);
  EXPECT_DOUBLE_EQ(share(10), 1);
  EXPECT_DOUBLE_EQ(share(11), 0.75);
  EXPECT_DOUBLE_EQ(share(20), 1);
  EXPECT_DOUBLE_EQ(share(90), 0);
}

TEST(WeightQuantization, says_when_bits_fall) {
  EXPECT_EQ((WeightQuantization{.schedule_offset = 100}).describe(kGroup),
            "8 to 5 bits, symmetric, from step 101 on, 7 bits from 110, 6 bits from 120, 5 bits from 140");
  EXPECT_EQ((WeightQuantization{.stochastic = true, .in_forward = true}).describe(kGroup),
            "5 bits, symmetric, rounded stochastically, from step 1 on");
  const WeightGroup binary{.name = "wq2", .modules = {"embed"}, .bits = {.start_bits = 1, .target_bits = 1}};
  EXPECT_EQ(WeightQuantization{}.describe(binary), "1 bits, binary, from step 1 on");
}

TEST(WeightQuantization, a_share_of_the_weight_is_mixed_with_the_rounded_one) {
  const std::vector<float> stored{-1, -0.3f, 0.26f, 0.9f};
  std::vector<float> rounded(4), mixed(4);
  WeightRounding rounding{.quantizer = {.bits = 3}};
  round_weights(rounding, 1, stored, rounded);
  EXPECT_EQ(rounded, (std::vector<float>{-1, -0.25f, 0.25f, 0.75f}));
  rounding.unquantized_share = 0.5;
  round_weights(rounding, 1, stored, mixed);
  for (size_t i = 0; i < 4; ++i) EXPECT_FLOAT_EQ(mixed[i], (stored[i] + rounded[i]) / 2);
  rounding.unquantized_share = 1;
  round_weights(rounding, 1, stored, mixed);
  EXPECT_EQ(mixed, stored);
}

}  // namespace
}  // namespace nought::weight_quantization_test
