#include "nought/optim/schedule.h"

#include <array>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "nought/base/error.h"

namespace nought::schedule_test {
namespace {

Schedule hugging_face(ScheduleType type) {
  return {.type = type, .peak_lr = 1e-3, .warmup_steps = 4, .total_steps = 12};
}

Schedule deepspeed(ScheduleType type, WarmupShape shape) {
  return {.type = type, .peak_lr = 1e-2, .warmup_steps = 8, .total_steps = 16, .warmup_shape = shape, .min_lr = 1e-3};
}

TEST(Schedule, constant_is_the_peak_from_the_first_update) {
  const Schedule s = hugging_face(ScheduleType::constant);
  EXPECT_EQ(learning_rate(s, 0), 1e-3);
  EXPECT_EQ(learning_rate(s, 1000), 1e-3);
}

TEST(Schedule, hugging_face_warmup_starts_at_zero_and_rises_by_equal_steps) {
  for (ScheduleType type : {ScheduleType::constant_with_warmup, ScheduleType::linear, ScheduleType::cosine}) {
    const Schedule s = hugging_face(type);
    EXPECT_EQ(learning_rate(s, 0), 0.0);
    EXPECT_DOUBLE_EQ(learning_rate(s, 1), 0.25e-3);
    EXPECT_DOUBLE_EQ(learning_rate(s, 3), 0.75e-3);
    EXPECT_DOUBLE_EQ(learning_rate(s, 4), 1e-3);
  }
}

TEST(Schedule, constant_with_warmup_stays_at_the_peak) {
  EXPECT_EQ(learning_rate(hugging_face(ScheduleType::constant_with_warmup), 500), 1e-3);
}

TEST(Schedule, linear_reaches_zero_at_the_end_and_stays_there) {
  const Schedule s = hugging_face(ScheduleType::linear);
  EXPECT_DOUBLE_EQ(learning_rate(s, 6), 0.75e-3);
  EXPECT_DOUBLE_EQ(learning_rate(s, 11), 0.125e-3);
  EXPECT_EQ(learning_rate(s, 12), 0.0);
  EXPECT_EQ(learning_rate(s, 20), 0.0);
}

TEST(Schedule, cosine_follows_half_a_period_and_stays_at_zero) {
  const Schedule s = hugging_face(ScheduleType::cosine);
  EXPECT_DOUBLE_EQ(learning_rate(s, 6), 1e-3 * (0.5 + std::sqrt(2.0) / 4));  // a quarter of the way: cos(pi / 4)
  EXPECT_DOUBLE_EQ(learning_rate(s, 8), 0.5e-3);
  EXPECT_NEAR(learning_rate(s, 12), 0.0, 1e-18);
  EXPECT_NEAR(learning_rate(s, 20), 0.0, 1e-18);
}

TEST(Schedule, without_warmup_the_first_update_has_the_peak) {
  Schedule s = hugging_face(ScheduleType::linear);
  s.warmup_steps = 0;
  EXPECT_EQ(learning_rate(s, 0), 1e-3);
  EXPECT_DOUBLE_EQ(learning_rate(s, 3), 0.75e-3);
}

// warmup_num_steps 8: log(i + 1) / log(8) is 0, 1/3, 2/3, 1 at i = 0, 1, 3, 7; update k runs at iteration k - 1.
TEST(Schedule, warmup_lr_rises_with_the_logarithm_one_update_behind) {
  const Schedule s = deepspeed(ScheduleType::warmup_lr, WarmupShape::log);
  EXPECT_EQ(learning_rate(s, 0), 1e-3);
  EXPECT_EQ(learning_rate(s, 1), 1e-3);
  EXPECT_DOUBLE_EQ(learning_rate(s, 2), 4e-3);
  EXPECT_DOUBLE_EQ(learning_rate(s, 4), 7e-3);
  EXPECT_DOUBLE_EQ(learning_rate(s, 8), 1e-2);
  EXPECT_EQ(learning_rate(s, 9), 1e-2);
  EXPECT_EQ(learning_rate(s, 999), 1e-2);
}

TEST(Schedule, warmup_lr_rises_linearly_when_asked) {
  const Schedule s = deepspeed(ScheduleType::warmup_lr, WarmupShape::linear);
  EXPECT_EQ(learning_rate(s, 0), 1e-3);
  EXPECT_DOUBLE_EQ(learning_rate(s, 3), 1e-3 + 9e-3 * 2 / 8);
  EXPECT_DOUBLE_EQ(learning_rate(s, 8), 1e-3 + 9e-3 * 7 / 8);
  EXPECT_EQ(learning_rate(s, 9), 1e-2);
}

TEST(Schedule, a_deepspeed_warmup_lasts_at_least_two_iterations) {
  Schedule s = deepspeed(ScheduleType::warmup_lr, WarmupShape::log);
  s.warmup_steps = 0;
  EXPECT_EQ(learning_rate(s, 1), 1e-3);
  EXPECT_DOUBLE_EQ(learning_rate(s, 2), 1e-2);  // log(2) / log(2)
}

TEST(Schedule, warmup_decay_lr_falls_to_the_minimum_at_the_end) {
  const Schedule s = deepspeed(ScheduleType::warmup_decay_lr, WarmupShape::log);
  EXPECT_DOUBLE_EQ(learning_rate(s, 2), 4e-3);
  EXPECT_DOUBLE_EQ(learning_rate(s, 9), 1e-2);
  EXPECT_DOUBLE_EQ(learning_rate(s, 13), 1e-3 + 9e-3 * 4 / 8);
  EXPECT_DOUBLE_EQ(learning_rate(s, 17), 1e-3);
  EXPECT_DOUBLE_EQ(learning_rate(s, 40), 1e-3);
}

TEST(Schedule, warmup_cosine_lr_goes_from_its_warmup_ratio_to_its_cosine_ratio) {
  Schedule s = deepspeed(ScheduleType::warmup_cosine_lr, WarmupShape::linear);
  s.warmup_min_ratio = 0.2;
  s.cos_min_ratio = 0.1;
  EXPECT_EQ(learning_rate(s, 0), 0.0);
  EXPECT_DOUBLE_EQ(learning_rate(s, 1), 1e-2 * 0.2);
  EXPECT_DOUBLE_EQ(learning_rate(s, 5), 1e-2 * (0.2 + 0.8 * 4 / 8));
  EXPECT_DOUBLE_EQ(learning_rate(s, 12), 1e-2 * (0.1 + 0.9 * 0.5));  // iteration 11: half of the 8 decay steps
  EXPECT_NEAR(learning_rate(s, 16), 1e-2 * 0.1, 1e-15);              // iteration 15: all of them
  EXPECT_NEAR(learning_rate(s, 30), 1e-2 * 0.1, 1e-15);
}

TEST(Schedule, cosine_with_restarts_starts_again_at_the_peak) {
  Schedule s = hugging_face(ScheduleType::cosine_with_restarts);
  s.num_cycles = 2;
  EXPECT_DOUBLE_EQ(learning_rate(s, 2), 0.5e-3);
  EXPECT_DOUBLE_EQ(learning_rate(s, 6), 0.5e-3);  // half of the first cycle of 4 updates
  EXPECT_DOUBLE_EQ(learning_rate(s, 8), 1e-3);
  EXPECT_EQ(learning_rate(s, 12), 0.0);
}

TEST(Schedule, polynomial_falls_to_its_end_and_stays_there) {
  Schedule s = hugging_face(ScheduleType::polynomial);
  s.power = 2, s.end_lr = 1e-4;
  EXPECT_DOUBLE_EQ(learning_rate(s, 4), 1e-3);
  EXPECT_DOUBLE_EQ(learning_rate(s, 8), 1e-4 + 9e-4 * 0.25);
  EXPECT_DOUBLE_EQ(learning_rate(s, 12), 1e-4);
  EXPECT_DOUBLE_EQ(learning_rate(s, 40), 1e-4);
}

TEST(Schedule, inverse_sqrt_falls_from_the_end_of_the_warmup) {
  Schedule s = hugging_face(ScheduleType::inverse_sqrt);
  EXPECT_DOUBLE_EQ(learning_rate(s, 4), 1e-3);
  EXPECT_DOUBLE_EQ(learning_rate(s, 16), 0.5e-3);
  s.timescale = 12;
  EXPECT_DOUBLE_EQ(learning_rate(s, 40), 0.5e-3);  // 1 / sqrt((40 + 12 - 4) / 12)
  s.timescale = 0, s.warmup_steps = 0;
  EXPECT_DOUBLE_EQ(learning_rate(s, 30000), 0.5e-3);
}

/// The rates at these numbers of updates, as fractions of the peak, are transformers' (optimization.py of 5.24).
void expect_factors(const Schedule& s, const std::vector<double>& expected) {
  constexpr std::array<int64_t, 9> kSteps{0, 1, 3, 4, 6, 8, 11, 12, 20};
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(learning_rate(s, kSteps[i]) / s.peak_lr, expected[i], 1e-15) << kSteps[i];
}

TEST(Schedule, a_cosine_may_end_above_zero_and_stays_there) {
  Schedule s = hugging_face(ScheduleType::cosine_with_min_lr);
  s.min_ratio = 0.1;
  expect_factors(s, {0, 0.25, 0.75, 1, 0.8681980515339464, 0.55, 0.13425421036992097, 0.1, 0.1});
  s.type = ScheduleType::cosine, s.waves = 1;
  expect_factors(s, {0, 0.25, 0.75, 1, 0.5, 0, 0.8535533905932737, 1, 1});
}

TEST(Schedule, cosine_warmup_with_min_lr_begins_above_zero_one_update_ahead) {
  Schedule s = hugging_face(ScheduleType::cosine_warmup_with_min_lr);
  s.min_ratio = 0.1;
  expect_factors(s, {0.25, 0.5, 1, 0.9657457896300791, 0.7222075445642904, 0.3777924554357096, 0.1, 0.1, 0.1});
  s.warmup_ratio = 0.4;
  expect_factors(s, {0.4, 0.6, 1, 0.9657457896300791});
}

TEST(Schedule, warmup_stable_decay_holds_the_peak_between_two_bends) {
  Schedule s = hugging_face(ScheduleType::warmup_stable_decay);
  s.min_ratio = 0.1, s.stable = {.decay_steps = 5, .warmup = Bend::linear, .decay = Bend::linear};
  expect_factors(s, {0.1, 0.325, 0.775, 1, 1, 0.82, 0.28, 0.1, 0.1});
  s.stable.warmup = s.stable.decay = Bend::cosine;
  expect_factors(s, {0.1, 0.2318019484660536, 0.8681980515339464, 1, 1, 0.9140576474687263, 0.18594235253127372, 0.1});
  s.stable.warmup = s.stable.decay = Bend::one_minus_sqrt;
  expect_factors(s, {0.1, 0.22057713659400527, 0.55, 1, 1, 0.5975077640500379, 0.19501552810007572, 0.1});
  EXPECT_EQ(stable_steps(s), 3);
  s.stable.stable_steps = 1;
  expect_factors(s, {0.1, 0.22057713659400527, 0.55, 1, 1 - std::sqrt(0.2) + 0.1 * std::sqrt(0.2)});
}

TEST(Schedule, lr_range_test_rises_in_a_line_or_by_stairs) {
  Schedule s{.type = ScheduleType::lr_range_test, .min_lr = 1e-3, .range = {.step_size = 10, .step_rate = 2}};
  EXPECT_DOUBLE_EQ(learning_rate(s, 0), 1e-3);
  EXPECT_DOUBLE_EQ(learning_rate(s, 5), 1e-3 * 2);
  s.range.staircase = true;
  EXPECT_DOUBLE_EQ(learning_rate(s, 9), 1e-3);
  EXPECT_DOUBLE_EQ(learning_rate(s, 10), 1e-3 * 3);
}

TEST(Schedule, one_cycle_rises_falls_and_decays_while_the_momentum_does_the_opposite) {
  Schedule s{
      .type = ScheduleType::one_cycle, .peak_lr = 1e-2, .min_lr = 2e-3, .cycle = {.first_steps = 4, .second_steps = 8}};
  s.cycle.decay_steps = 5, s.cycle.decay_lr_rate = 1;
  EXPECT_DOUBLE_EQ(learning_rate(s, 0), 2e-3);
  EXPECT_DOUBLE_EQ(learning_rate(s, 2), 6e-3);
  EXPECT_DOUBLE_EQ(learning_rate(s, 4), 1e-2);
  EXPECT_DOUBLE_EQ(learning_rate(s, 8), 6e-3);
  EXPECT_DOUBLE_EQ(learning_rate(s, 12), 2e-3);
  EXPECT_DOUBLE_EQ(learning_rate(s, 17), 1e-3);  // iteration 16 is five updates after the cycle: 2e-3 / (1 + 1)
  EXPECT_DOUBLE_EQ(cycled_betas(s, 0).beta1, 0.8);
  EXPECT_DOUBLE_EQ(cycled_betas(s, 2).beta1, 0.85);
  EXPECT_DOUBLE_EQ(cycled_betas(s, 4).beta1, 0.8);
  EXPECT_DOUBLE_EQ(cycled_betas(s, 30).beta1, 0.9);
  EXPECT_EQ(cycled_betas(s, 30).beta2, 0.99);
  s.cycle.first_stairs = 2;
  EXPECT_DOUBLE_EQ(learning_rate(s, 1), 2e-3);
  EXPECT_DOUBLE_EQ(learning_rate(s, 3), 6e-3);
}

TEST(Schedule, a_negative_update_index_is_refused) {
  EXPECT_THROW(learning_rate(hugging_face(ScheduleType::linear), -1), Error);
}

TEST(Schedule, names_are_those_of_the_two_libraries) {
  EXPECT_EQ(name_of(ScheduleType::constant_with_warmup), "constant_with_warmup");
  EXPECT_EQ(name_of(ScheduleType::warmup_decay_lr), "WarmupDecayLR");
  EXPECT_FALSE(needs_total_steps(ScheduleType::warmup_lr));
  EXPECT_TRUE(needs_total_steps(ScheduleType::cosine));
}

}  // namespace
}  // namespace nought::schedule_test
