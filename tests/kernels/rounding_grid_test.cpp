#include "nought/kernels/rounding_grid.h"

#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "nought/tensor/dtype.h"

namespace nought::rounding_grid_test {
namespace {

TEST(RoundingGrid, a_symmetric_one_has_its_zero_in_the_middle) {
  const std::vector<float> values{-1.5f, 0.25f, 0.75f};
  const RoundingGrid grid = grid_of(values, {.bits = 4});
  EXPECT_NEAR(grid.scale, 0.2f, 1e-4) << "2 * 1.5 / 15, which f16 holds to 11 bits";
  EXPECT_EQ(grid.scale, static_cast<float>(f16_t(grid.scale)));
  EXPECT_EQ(grid.zero, 8);
  EXPECT_EQ(grid.code_of(-1.5f), 0);
  EXPECT_EQ(grid.code_of(0), 8);
  EXPECT_EQ(grid.code_of(9), 15);
  EXPECT_FLOAT_EQ(grid.rounded(0.75f), 4 * grid.scale);
}

TEST(RoundingGrid, another_one_reaches_from_the_least_to_the_greatest_and_to_0) {
  const std::vector<float> positive{0.5f, 1.5f}, both{-0.5f, 1.0f};
  const RoundingGrid grid = grid_of(positive, {.bits = 2, .symmetric = false});
  EXPECT_EQ(grid.zero, 0);
  EXPECT_FLOAT_EQ(grid.scale, 0.5f);
  EXPECT_FLOAT_EQ(grid.rounded(0), 0);
  const RoundingGrid wide = grid_of(both, {.bits = 2, .symmetric = false});
  EXPECT_EQ(wide.zero, 1);
  for (const float value : both) EXPECT_FLOAT_EQ(wide.rounded(value), value);
}

TEST(RoundingGrid, values_of_0_become_0_and_those_beyond_f16_stay_finite) {
  for (const bool symmetric : {true, false}) {
    const std::vector<float> zeros(8), huge{-1e30f, 1e30f}, tiny{1e-12f};
    EXPECT_EQ(grid_of(zeros, {.symmetric = symmetric}).rounded(0), 0);
    EXPECT_TRUE(std::isfinite(grid_of(huge, {.symmetric = symmetric}).rounded(1e30f)));
    EXPECT_EQ(grid_of(tiny, {.symmetric = symmetric}).rounded(1e-12f), 0);
  }
}

TEST(RoundingGrid, floats_of_4_bits_have_a_power_of_two) {
  const GridRule rule{.codes = CodeTable::e2m1};
  const std::vector<float> values{-11.0f, 0.4f, 3.0f};
  const RoundingGrid grid = grid_of(values, rule);
  EXPECT_EQ(grid.scale, 2.0f) << "11 becomes 12; with a scale of 1 it would become 6";
  EXPECT_EQ(grid.code_of(-11.0f), 15);
  EXPECT_EQ(grid.rounded(3.0f), 3.0f);
  const std::pair<float, float> rounded[] = {{0.25f, 0},     {0.26f, 0.5f}, {0.75f, 1}, {1.25f, 1}, {1.75f, 2},
                                             {-2.5f, -2.0f}, {3.5f, 4},     {5, 4},     {5.1f, 6},  {100, 6}};
  for (const auto& [value, expected] : rounded)
    EXPECT_EQ((RoundingGrid{.codes = CodeTable::e2m1}).rounded(value), expected) << value;
  EXPECT_EQ(grid_of(std::vector<float>(4), rule).rounded(0), 0);
}

TEST(RoundingGrid, floats_of_8_bits_reach_448) {
  const GridRule rule{.bits = 8, .codes = CodeTable::e4m3};
  const std::vector<float> values{-4.48f, 0.1f};
  const RoundingGrid grid = grid_of(values, rule);
  EXPECT_FLOAT_EQ(grid.scale, 0.01f);
  EXPECT_FLOAT_EQ(grid.rounded(-4.48f), -4.48f);
  EXPECT_FLOAT_EQ(grid.rounded(0.1f), 0.1f) << "10 steps of the scale";
  EXPECT_FLOAT_EQ(grid.rounded(9), 4.48f);
  EXPECT_EQ(grid_of(std::vector<float>(4), rule).rounded(0), 0);
}

}  // namespace
}  // namespace nought::rounding_grid_test
