#include "nought/nn/policy_loss.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nought::policy_loss_test {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

TEST(PolicyLoss, has_the_values_of_the_formulas_by_hand) {
  const PolicyLossOptions options;
  const PolicyToken clipped = policy_token(options, std::log(1.3), 0.866, -1, -1);
  EXPECT_NEAR(clipped.loss, -1.2 * 0.866, 1e-12);
  EXPECT_EQ(clipped.d_log_ratio, 0);
  const PolicyToken free = policy_token(options, std::log(1.3), -0.866, -1, -1);
  EXPECT_NEAR(free.loss, 1.3 * 0.866, 1e-12);
  EXPECT_NEAR(free.d_log_ratio, 1.3 * 0.866, 1e-12);
}

TEST(PolicyLoss, derivatives_are_the_slopes_of_every_type) {
  constexpr double kStep = 1e-6, kSelf = -1.4, kReference = -1.1;
  for (const auto& [type, name] : EnumNames<PolicyLossType>::value)
    for (const double log_ratio : {-0.4, -0.1, 0.05, 0.5})
      for (const double advantage : {-0.7, 1.2})
        for (const bool corrects : {false, true}) {
          PolicyLossOptions options{.type = type, .delta = 1.4, .beta = 0.3, .corrects_kl = corrects};
          if (type == PolicyLossType::cispo) options.epsilon_high = 1.3;
          const PolicyToken token = policy_token(options, log_ratio, advantage, kSelf, kReference);
          const auto slope = [&](double by_ratio, double by_self) {
            const auto at = [&](double step) {
              return policy_token(options, log_ratio + by_ratio * step, advantage, kSelf + by_self * step, kReference);
            };
            return (at(kStep).loss - at(-kStep).loss) / (2 * kStep);
          };
          // cispo's ratio is a constant; only what corrects the divergence is not.
          const double by_ratio = type == PolicyLossType::cispo
                                      ? (corrects ? options.beta * token.kl * std::exp(log_ratio) : 0)
                                      : slope(1, 0);
          EXPECT_NEAR(token.d_log_ratio, by_ratio, 1e-7) << name << log_ratio << advantage;
          EXPECT_NEAR(token.d_self, slope(0, 1), 1e-7) << name << log_ratio << advantage;
        }
}

TEST(PolicyLoss, advantages_are_those_of_their_group) {
  const std::vector<double> one{1}, rewards{1, 0, 0, 1};
  const double deviation = std::sqrt(1.0 / 3);
  EXPECT_THAT(advantages_of(rewards, one, 4, RewardScale::none), ElementsAre(0.5, -0.5, -0.5, 0.5));
  EXPECT_NEAR(advantages_of(rewards, one, 4, RewardScale::group)[0], 0.5 / (deviation + 1e-4), 1e-12);
  EXPECT_NEAR(advantages_of(rewards, one, 2, RewardScale::batch)[0], 0.5 / (deviation + 1e-4), 1e-12);
  EXPECT_THAT(advantages_of(std::vector{2.0, 2.0}, one, 2, RewardScale::group), ElementsAre(0, 0));
  // What a function did not score is left out, and an answer without any score counts nothing.
  const std::vector<double> two{1, 0.5}, some{1, kNone, kNone, kNone, 0, 4};
  EXPECT_THAT(advantages_of(some, two, 3, RewardScale::none), ElementsAre(DoubleNear(-0.5, 1e-12), 0, 0.5));
}

TEST(PolicyLoss, advantages_over_the_others_leave_ones_own_reward_out) {
  const std::vector<double> rewards{1, 0, 0, 5};
  EXPECT_THAT(advantages_over_others({}, rewards, 2), ElementsAre(1, -1, -5, 5));
  EXPECT_THAT(advantages_over_others({}, std::vector{1.0, 0.0, 5.0}, 3), ElementsAre(-1.5, -3, 4.5));
  // Nobody scored the second; the last is alone in its group.
  const std::vector<double> some{1, kNone, 3, kNone, kNone, 2};
  EXPECT_THAT(advantages_over_others({}, some, 3), ElementsAre(-2, 0, 2, 0, 0, 0));
  const double by = std::sqrt(8.0) + 1e-4;
  EXPECT_THAT(advantages_over_others({.normalizes = true}, some, 3),
              ElementsAre(DoubleNear(-2 / by, 1e-12), 0, DoubleNear(2 / by, 1e-12), 0, 0, 0));
}

TEST(PolicyLoss, ratios_pass_the_bound_on_the_side_of_their_advantage) {
  EXPECT_EQ(clipping_of({}, 1.3, 1), Clipping::high);
  EXPECT_EQ(clipping_of({}, 1.3, -1), Clipping::none);
  EXPECT_EQ(clipping_of({}, 0.7, -1), Clipping::low);
  EXPECT_EQ(clipping_of({.delta = 1.1}, 1.3, 1), Clipping::none);
  const PolicyLossOptions cispo{.type = PolicyLossType::cispo, .epsilon_high = 1.28};
  EXPECT_EQ(clipping_of(cispo, 1.3, 1), Clipping::high);
  EXPECT_EQ(clipping_of(cispo, 0.1, -1), Clipping::none);
}

TEST(PolicyLoss, quantiles_are_those_of_torch) {
  EXPECT_EQ(quantile_of({4, 1, 2}, 0.5), 2);
  EXPECT_NEAR(quantile_of({1, 2, 3, 5}, 0.8), 3.8, 1e-12);
  EXPECT_EQ(quantile_of({7}, 0.3), 7);
  EXPECT_EQ(quantile_of({1, 2}, 1), 2);
}

TEST(PolicyLoss, rewards_are_clipped_before_the_divergence_is_taken_off) {
  const LeaveOneOutOptions options{.beta = 0.5, .clip_range = {{-1, 2}}};
  const std::vector<double> totals{3, -4, kNone};
  EXPECT_THAT(penalised_rewards(options, totals, {}), ElementsAre(2, -1, testing::IsNan()));
  EXPECT_THAT(penalised_rewards(options, totals, std::vector{1.0, -1.0, 2.0}),
              ElementsAre(1.5, -0.5, testing::IsNan()));
}

}  // namespace
}  // namespace nought::policy_loss_test
