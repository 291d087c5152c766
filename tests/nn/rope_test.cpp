// Rotary frequencies against the formulas of the papers.
#include "nought/nn/rope.h"

#include <cmath>
#include <numbers>

#include <gtest/gtest.h>

namespace nought::rope_test {
namespace {

RopeOptions plain(int64_t dim = 8, double theta = 10000) { return {.theta = theta, .rotary_dim = dim}; }

TEST(Rope, plain_frequencies_fall_from_one_by_equal_factors) {
  const std::vector<double> all = plain().frequencies(1);
  ASSERT_EQ(all.size(), 4u);
  for (size_t i = 0; i < all.size(); ++i) EXPECT_DOUBLE_EQ(all[i], std::pow(10000.0, -static_cast<double>(i) / 4));
}

TEST(Rope, linear_scaling_divides_all) {
  RopeOptions linear = plain();
  linear.kind = RopeKind::linear, linear.factor = 4;
  const std::vector<double> all = linear.frequencies(1), before = plain().frequencies(1);
  for (size_t i = 0; i < all.size(); ++i) EXPECT_DOUBLE_EQ(all[i], before[i] / 4);
}

TEST(Rope, llama3_keeps_high_frequencies_stretches_low_ones_and_blends_between) {
  RopeOptions llama3 = plain(64);
  llama3.kind = RopeKind::llama3, llama3.factor = 8, llama3.original_max_positions = 512;
  llama3.low_freq_factor = 1, llama3.high_freq_factor = 4;
  const std::vector<double> all = llama3.frequencies(1), before = plain(64).frequencies(1);
  int kept = 0, stretched = 0, between = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const double wavelength = 2 * std::numbers::pi / before[i];
    if (wavelength < 512.0 / 4) {
      EXPECT_EQ(all[i], before[i]);
      ++kept;
    } else if (wavelength > 512) {
      EXPECT_DOUBLE_EQ(all[i], before[i] / 8);
      ++stretched;
    } else {
      EXPECT_TRUE(before[i] / 8 < all[i] && all[i] < before[i]);
      ++between;
    }
  }
  EXPECT_TRUE(kept > 0 && stretched > 0 && between > 0);
}

TEST(Rope, llama3_blends_nothing_where_both_factors_are_one) {
  RopeOptions llama3 = plain(64);  // as Llama 4 Scout has them
  llama3.kind = RopeKind::llama3, llama3.factor = 16, llama3.original_max_positions = 512;
  llama3.low_freq_factor = llama3.high_freq_factor = 1;
  const std::vector<double> all = llama3.frequencies(1), before = plain(64).frequencies(1);
  for (size_t i = 0; i < all.size(); ++i) {
    const bool fits = 2 * std::numbers::pi / before[i] <= 512;
    EXPECT_DOUBLE_EQ(all[i], fits ? before[i] : before[i] / 16) << i;
  }
}

TEST(Rope, longrope_divides_by_the_factors_of_the_length) {
  RopeOptions longrope = plain(4);
  longrope.kind = RopeKind::longrope, longrope.original_max_positions = 100, longrope.factor = 4;
  longrope.short_factors = {1, 2}, longrope.long_factors = {3, 4};
  const std::vector<double> before = plain(4).frequencies(1);
  EXPECT_DOUBLE_EQ(longrope.frequencies(100)[1], before[1] / 2);
  EXPECT_DOUBLE_EQ(longrope.frequencies(101)[1], before[1] / 4);
  EXPECT_EQ(longrope.switch_length(), 100);
  EXPECT_DOUBLE_EQ(longrope.table_scale(), std::sqrt(1 + std::log(4) / std::log(100)));
  longrope.attention_factor = 1.5;
  EXPECT_EQ(longrope.table_scale(), 1.5);
  EXPECT_EQ(plain().switch_length(), 0);
  EXPECT_EQ(plain().table_scale(), 1);
}

TEST(Rope, tables_hold_cosines_and_sines_of_every_position) {
  const Context context = Context::reference();
  const RopeTables tables = make_rope_tables(context, 50, plain(), DType::f32);
  ASSERT_EQ(tables.cos.shape(), (Shape{50, 4}));
  EXPECT_EQ(tables.cos.dtype(), DType::f32);
  const std::vector<double> frequencies = plain().frequencies(1);
  for (int64_t p = 0; p < 50; ++p)
    for (int64_t i = 0; i < 4; ++i) {
      const double angle = static_cast<double>(p) * frequencies[static_cast<size_t>(i)];
      ASSERT_EQ(tables.cos.data<float>()[p * 4 + i], static_cast<float>(std::cos(angle)));
      ASSERT_EQ(tables.sin.data<float>()[p * 4 + i], static_cast<float>(std::sin(angle)));
    }
  EXPECT_EQ(make_rope_tables(context, 5, plain(), DType::bf16).cos.dtype(), DType::f32) << "angles stay in fp32";
  EXPECT_THROW(make_rope_tables(context, 5, plain(7), DType::f32), ShapeError);
}

TEST(Rope, factors_of_queries_grow_by_the_logarithm_of_whole_lengths) {
  const Context context = Context::reference();
  const QueryScale scale{.beta = 0.5, .length = 3, .shift = 1};
  const RopeTables factors = make_query_factors(context, 8, scale, 4, DType::f64);
  const auto cos = factors.cos.to_vector<double>(), sin = factors.sin.to_vector<double>();
  ASSERT_EQ(cos.size(), 16u);
  for (size_t i = 0; i < 16; ++i) {
    EXPECT_DOUBLE_EQ(cos[i], 1 + 0.5 * std::log(1 + std::floor(static_cast<double>(i / 2 + 1) / 3)));
    EXPECT_EQ(sin[i], 0);
  }
}

TEST(Rope, tables_of_two_lengths_lie_one_behind_the_other) {
  const Context context = Context::reference();
  RopeOptions longrope = plain(4);
  longrope.kind = RopeKind::longrope, longrope.original_max_positions = 8, longrope.factor = 1;
  longrope.short_factors = {1, 1}, longrope.long_factors = {2, 2};
  const RopeTables tables = make_rope_tables(context, 16, longrope, DType::f64);
  EXPECT_EQ(tables.cos.shape(), (Shape{32, 2}));
  EXPECT_EQ(tables.long_begin, 16);
  for (int64_t p = 0; p < 16; ++p) {
    EXPECT_DOUBLE_EQ(tables.cos.data<double>()[p * 2], std::cos(static_cast<double>(p)));
    EXPECT_DOUBLE_EQ(tables.cos.data<double>()[(16 + p) * 2], std::cos(static_cast<double>(p) / 2));
  }
}

}  // namespace
}  // namespace nought::rope_test
