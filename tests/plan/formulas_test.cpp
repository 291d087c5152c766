#include "nought/plan/formulas.h"

#include "support/formulas.h"
#include <gtest/gtest.h>

namespace nought::formulas_test {
namespace {

using test::AxisTraffic;
using test::model_state_bytes;
using test::shared_layers_traffic;
using test::spread_experts_traffic;

constexpr double kGB = 1e9;

TEST(Formulas, zero_paper_table_of_7_5b_on_64_ranks) {
  const double expected[] = {120, 31.4, 16.6, 1.9};
  for (int stage = 0; stage <= 3; ++stage)
    EXPECT_NEAR(model_state_bytes(7.5e9, 64, Policy::stage(stage)) / kGB, expected[stage], 0.05) << stage;
}

TEST(Formulas, twelve_bytes_per_parameter_of_7b_on_8_ranks) {
  const double expected[] = {84, 35, 22.75, 10.5};
  for (int stage = 0; stage <= 3; ++stage)
    EXPECT_DOUBLE_EQ(model_state_bytes(7e9, 8, Policy::stage(stage), {.optimizer = 8}) / kGB, expected[stage]) << stage;
}

/// The readings of arXiv 2104.07857, section 4: sequences of 1024 at an achievable peak of 70 TFLOP/s.
TEST(Formulas, efficiency_of_what_crosses_follows_zero_infinity) {
  constexpr double kPeak = 70e12;
  EXPECT_NEAR(efficiency(parameters_intensity(1024), 70e9, kPeak), 0.506, 5e-4);
  EXPECT_NEAR(efficiency(optimizer_intensity(2 * 1024), 1.5e12, kPeak), 0.916, 5e-4);
  EXPECT_NEAR(efficiency(checkpoints_intensity(2048, 1), 2e9, kPeak), 0.584, 5e-4);
  EXPECT_NEAR(efficiency(checkpoints_intensity(8192, 1), 3e9, kPeak), 0.894, 5e-4);
}

/// arXiv 2104.04473, section 3.2: 8 b s h (t-1)/t elements of a layer for a micro-batch; and 4 b s h (t-1)/t more if it
/// is computed again.
TEST(Formulas, a_shared_layer_sends_eight_bsh_elements_and_slices_of_the_tokens_two_more) {
  const int64_t b = 2, s = 64, h = 32;
  for (const int t : {2, 4, 8}) {
    const auto of_a_layer = [&](bool slices, bool recomputes) {
      const auto total = [&](int64_t layers) {
        const AxisTraffic sent = shared_layers_traffic(
            {.ranks = t, .tokens = b * s, .hidden = h, .layers = layers, .slices = slices, .recomputes = recomputes});
        return sent.all_reduce + sent.all_gather + sent.reduce_scatter;
      };
      return total(3) - total(2);
    };
    const int64_t unit = b * s * h * (t - 1) / t;
    EXPECT_EQ(of_a_layer(false, false), 8 * unit);
    EXPECT_EQ(of_a_layer(false, true), 12 * unit);
    EXPECT_EQ(of_a_layer(true, false), (8 + 2) * unit);
    EXPECT_EQ(of_a_layer(true, true), (12 + 2) * unit);
  }
}

TEST(Formulas, balanced_tokens_travel_to_their_experts_and_back_in_both_passes) {
  const int64_t tokens = 128, k = 2, h = 32;
  for (const int e : {2, 4}) {
    const AxisTraffic sent =
        spread_experts_traffic({.ranks = e, .tokens = tokens, .hidden = h, .experts = 8, .top_k = k, .layers = 3});
    const int64_t exchange = tokens * k * h * (e - 1) / e;
    EXPECT_EQ(sent.all_to_all_v, 3 * (4 * exchange + 2 * exchange / h));
    EXPECT_EQ(sent.all_gather, 3 * 8 * (e - 1));
  }
}

}  // namespace
}  // namespace nought::formulas_test
