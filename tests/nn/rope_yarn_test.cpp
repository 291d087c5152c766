// The frequencies and the scale of every rotary scaling, as numbers: what transformers' modeling_rope_utils.py gives.
#include <cmath>

#include <gtest/gtest.h>

#include "nought/nn/rope.h"

namespace nought::rope_yarn_test {
namespace {

void expect_frequencies(const RopeOptions& options, const std::vector<double>& expected, int64_t length = 1) {
  const std::vector<double> actual = options.frequencies(length);
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(actual[i], expected[i], 1e-12 * expected[i]) << "pair " << i;
}

TEST(Rope, plain_and_linear_frequencies_fall_geometrically) {
  expect_frequencies({.theta = 10000, .rotary_dim = 8}, {1, 0.1, 0.01, 0.001});
  expect_frequencies({.kind = RopeKind::linear, .theta = 10000, .rotary_dim = 8, .factor = 4},
                     {0.25, 0.025, 0.0025, 0.00025});
}

TEST(Rope, yarn_blends_between_the_dimensions_of_beta_fast_and_beta_slow) {
  expect_frequencies(
      {.kind = RopeKind::yarn, .theta = 10000, .rotary_dim = 16, .factor = 4, .original_max_positions = 4096},
      {1.0, 0.31622776601683794, 0.1, 0.02569350598886808, 0.00625, 0.001383496476323666, 0.00025,
       7.905694150420948e-05});
}

/// The ramp may end behind the last pair: its end is limited to rotary_dim - 1, a dimension, not to the number of
/// pairs.
TEST(Rope, yarns_ramp_may_end_beyond_the_last_pair) {
  expect_frequencies(
      {.kind = RopeKind::yarn, .theta = 100, .rotary_dim = 16, .factor = 4, .original_max_positions = 4096},
      {1.0, 0.5623413251903491, 0.31622776601683794, 0.1778279410038923, 0.1, 0.05623413251903491, 0.028234621965789103,
       0.013972195364591537});
}

TEST(Rope, yarns_betas_and_truncation_move_the_ramp) {
  RopeOptions options{
      .kind = RopeKind::yarn, .theta = 100, .rotary_dim = 16, .factor = 4, .original_max_positions = 4096};
  options.beta_fast = 4;
  options.truncate = false;
  const std::vector<double> plain{1.0, 0.5623413251903491,  0.31622776601683794, 0.1778279410038923,
                                  0.1, 0.05623413251903491, 0.03162277660168379, 0.01778279410038923};
  expect_frequencies(options, plain);  // the ramp begins at 8.85, behind all pairs
  options.truncate = true;
  expect_frequencies(options, plain);
  options.beta_fast = 640, options.beta_slow = 64;  // the ramp goes from 0 to 5
  const std::vector<double> stretched = options.frequencies(1);
  EXPECT_NEAR(stretched.back(), plain.back() / 4, 1e-12);
  EXPECT_NEAR(stretched.front(), 1, 1e-12);
}

TEST(Rope, tables_are_scaled_by_yarns_temperature_once) {
  RopeOptions yarn{.kind = RopeKind::yarn, .rotary_dim = 16, .factor = 4, .original_max_positions = 32};
  const double temperature = 0.1 * std::log(4.0) + 1;
  EXPECT_DOUBLE_EQ(yarn.table_scale(), temperature);
  yarn.mscale = 2, yarn.mscale_all_dim = 1;
  EXPECT_DOUBLE_EQ(yarn.table_scale(), (0.2 * std::log(4.0) + 1) / temperature);
  yarn.attention_factor = 1.25;
  EXPECT_EQ(yarn.table_scale(), 1.25);
  EXPECT_EQ((RopeOptions{.kind = RopeKind::llama3, .factor = 4}.table_scale()), 1);
  const RopeOptions longrope{.kind = RopeKind::longrope, .factor = 32, .original_max_positions = 4096};
  EXPECT_DOUBLE_EQ(longrope.table_scale(), std::sqrt(1 + std::log(32.0) / std::log(4096.0)));
}

TEST(Rope, longrope_chooses_its_factors_by_the_length_of_the_sequence) {
  const RopeOptions options{.kind = RopeKind::longrope,
                            .theta = 10000,
                            .rotary_dim = 4,
                            .factor = 4,
                            .original_max_positions = 10,
                            .short_factors = {1, 2},
                            .long_factors = {4, 8}};
  expect_frequencies(options, {1, 0.005}, 10);
  expect_frequencies(options, {0.25, 0.00125}, 11);
}

}  // namespace
}  // namespace nought::rope_yarn_test
