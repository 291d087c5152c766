// Rounding as device code and the reference share it: once, and at random in proportion to what would be lost.
#include "nought/kernels/narrowing.h"

#include <gtest/gtest.h>

namespace nought::narrowing_test {
namespace {

TEST(Narrowing, a_double_is_rounded_to_16_bits_once) {
  for (const double sign : {1.0, -1.0}) {
    EXPECT_EQ(static_cast<double>(static_cast<float>(rounded<bf16_t>(sign * (1 + 0x1p-8 + 0x1p-40)))),
              sign * (1 + 0x1p-7));
    EXPECT_EQ(static_cast<double>(static_cast<float>(rounded<bf16_t>(sign * (1 + 0x1p-8)))), sign) << "a tie";
    EXPECT_EQ(static_cast<double>(static_cast<float>(rounded<f16_t>(sign * (1 + 0x1p-11 + 0x1p-40)))),
              sign * (1 + 0x1p-10));
  }
}

template <class T>
void expect_random_rounding_in_proportion(float quarter_of_a_step) {
  int up = 0;
  for (uint32_t random = 0; random < 65536; ++random)
    up += static_cast<float>(round_stochastic(1 + quarter_of_a_step, static_cast<uint16_t>(random), T())) > 1 ? 1 : 0;
  EXPECT_EQ(up, 16384);
  EXPECT_EQ(static_cast<float>(round_stochastic(1, 65535, T())), 1) << "nothing would be lost";
}

TEST(Narrowing, at_random_a_quarter_of_the_draws_round_a_quarter_of_a_step_up) {
  expect_random_rounding_in_proportion<bf16_t>(0x1p-9F);
  expect_random_rounding_in_proportion<f16_t>(0x1p-12F);
}

}  // namespace
}  // namespace nought::narrowing_test
