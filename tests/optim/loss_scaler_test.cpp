#include "nought/optim/loss_scaler.h"

#include <gtest/gtest.h>

#include "nought/base/error.h"

namespace nought::loss_scaler_test {
namespace {

std::vector<double> scales_of(LossScaler& scaler, const std::vector<bool>& overflows) {
  std::vector<double> scales;
  for (const bool overflow : overflows) {
    scaler.update(overflow);
    scales.push_back(scaler.scale());
  }
  return scales;
}

TEST(LossScaler, without_options_the_scale_is_one_and_stays) {
  LossScaler scaler;
  EXPECT_FALSE(scaler.scales());
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 1);
}

TEST(LossScaler, a_static_scale_never_changes) {
  LossScaler scaler({.static_scale = 128});
  EXPECT_TRUE(scaler.scales());
  EXPECT_EQ(scales_of(scaler, {true, true, false, true}), (std::vector<double>{128, 128, 128, 128}));
}

TEST(LossScaler, hysteresis_forgives_the_first_overflow_and_is_used_up) {
  LossScaler scaler({.initial_power = 8, .scale_window = 100, .hysteresis = 2});
  EXPECT_EQ(scales_of(scaler, {true, true, true, false, true}), (std::vector<double>{256, 128, 64, 64, 32}));
}

TEST(LossScaler, consecutive_hysteresis_forgives_again_after_a_good_step) {
  LossScaler scaler({.initial_power = 8, .scale_window = 100, .hysteresis = 2, .consecutive_hysteresis = true});
  EXPECT_EQ(scales_of(scaler, {true, false, true, true}), (std::vector<double>{256, 256, 256, 128}));
}

TEST(LossScaler, a_window_of_good_steps_doubles_the_scale_and_restores_the_hysteresis) {
  LossScaler scaler({.initial_power = 4, .scale_window = 3, .hysteresis = 2});
  // The count runs from the step before the first, as DeepSpeed's does.
  EXPECT_EQ(scales_of(scaler, {false, false, false, false}), (std::vector<double>{16, 16, 32, 32}));
  EXPECT_EQ(scales_of(scaler, {true, true, false, false, false}), (std::vector<double>{32, 16, 16, 16, 32}));
  EXPECT_EQ(scales_of(scaler, {true, true}), (std::vector<double>{32, 16}));
}

// DeepSpeed's last_overflow_iter moves with every overflow, also with one that leaves the scale as it is.
TEST(LossScaler, an_overflow_that_hysteresis_forgives_begins_the_window_anew) {
  LossScaler scaler({.initial_power = 4, .scale_window = 4, .hysteresis = 2});
  EXPECT_EQ(scales_of(scaler, {false, true, false, false, false, false}),
            (std::vector<double>{16, 16, 16, 16, 16, 32}));
}

TEST(LossScaler, an_overflow_at_the_smallest_scale_is_an_error) {
  LossScaler scaler({.initial_power = 1, .hysteresis = 1, .min_scale = 1});
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 1);
  EXPECT_THROW(scaler.update(true), Error);
}

TEST(LossScaler, a_restored_scaler_goes_on_as_if_it_had_never_stopped) {
  const LossScaleOptions options{.initial_power = 6, .scale_window = 4, .hysteresis = 2};
  const std::vector<bool> before{false, true, false, false, true},
      after{false, false, true, false, false, false, false};
  LossScaler whole(options);
  scales_of(whole, before);
  LossScaler resumed(options);
  resumed.restore(whole.state());
  EXPECT_EQ(scales_of(resumed, after), scales_of(whole, after));
}

}  // namespace
}  // namespace nought::loss_scaler_test
