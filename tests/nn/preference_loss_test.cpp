#include "nought/nn/preference_loss.h"

#include <cmath>

#include <gtest/gtest.h>

namespace nought::preference_loss_test {
namespace {

const AnswerSums kChosen{-7.8, -9, 6}, kRejected{-6.8, -6, 4};  // ratios 1.2 and -0.8

double loss_of(PairLossType type, double smoothing = 0) {
  PairLossOptions options;
  options.terms = {{type, 1}}, options.label_smoothing = smoothing;
  return pair_loss(options, kChosen, kRejected).loss;
}

TEST(PreferenceLoss, has_the_values_of_the_formulas_by_hand) {
  EXPECT_NEAR(loss_of(PairLossType::sigmoid), 0.5981, 5e-5);
  EXPECT_NEAR(loss_of(PairLossType::sigmoid, 0.1), 0.5981, 5e-5);  // which it ignores
  EXPECT_NEAR(loss_of(PairLossType::robust, 0.1), 0.5731, 5e-5);
  EXPECT_NEAR(loss_of(PairLossType::smoothed, 0.1), 0.9 * 0.598139 + 0.1 * 0.798139, 5e-6);
  EXPECT_NEAR(loss_of(PairLossType::hinge), 0.8, 1e-12);
  EXPECT_NEAR(loss_of(PairLossType::ipo), 21.16, 1e-12);
}

TEST(PreferenceLoss, of_an_answer_with_a_label_is_ktos) {
  const LabelLossOptions options{.beta = 0.5, .desirable_weight = 2, .undesirable_weight = 0.25};
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  EXPECT_NEAR(label_loss(options, true, 1.2, 0.4).loss, 2 * (1 - sigmoid(0.4)), 1e-12);
  EXPECT_NEAR(label_loss(options, false, 1.2, 0.4).loss, 0.25 * (1 - sigmoid(-0.4)), 1e-12);
  LabelLossOptions apo = options;
  apo.apo_zero = true;
  EXPECT_NEAR(label_loss(apo, false, 1.2, 0.4).loss, 0.25 * sigmoid(0.6), 1e-12);
  constexpr double kStep = 1e-6;
  for (const LabelLossOptions& each : {options, apo})
    for (const bool desirable : {true, false}) {
      const double slope =
          (label_loss(each, desirable, 1.2 + kStep, 0.4).loss - label_loss(each, desirable, 1.2 - kStep, 0.4).loss) /
          (2 * kStep);
      EXPECT_NEAR(label_loss(each, desirable, 1.2, 0.4).slope, slope, 1e-8);
    }
}

TEST(PreferenceLoss, derivatives_are_the_slopes_of_every_loss) {
  constexpr double kStep = 1e-6;
  for (const auto& [type, name] : EnumNames<PairLossType>::value)
    for (const auto& [divergence, of] : EnumNames<Divergence>::value) {
      PairLossOptions options{.terms = {{type, 0.7}, {PairLossType::sigmoid, 0.5}},
                              .beta = 0.3,
                              .label_smoothing = 0.2,
                              .divergence = divergence,
                              .discopop_tau = 0.4};
      const auto at = [&](double chosen, double rejected) {
        AnswerSums c = kChosen, r = kRejected;
        c.policy += chosen, r.policy += rejected;
        return pair_loss(options, c, r);
      };
      const PairLoss here = at(0, 0);
      EXPECT_NEAR(here.d_chosen, (at(kStep, 0).loss - at(-kStep, 0).loss) / (2 * kStep), 1e-7) << name << " " << of;
      EXPECT_NEAR(here.d_rejected, (at(0, kStep).loss - at(0, -kStep).loss) / (2 * kStep), 1e-7) << name << " " << of;
    }
}

TEST(PreferenceLoss, stays_finite_where_the_answers_are_far_apart) {
  for (const auto& [type, name] : EnumNames<PairLossType>::value) {
    if (type == PairLossType::discopop) continue;  // it holds an exponential
    PairLossOptions options{.terms = {{type, 1}}, .beta = 1, .label_smoothing = 0.1};
    const PairLoss loss = pair_loss(options, {-900, -100, 9}, {-100, -900, 9});
    EXPECT_TRUE(std::isfinite(loss.loss) && std::isfinite(loss.d_chosen) && std::isfinite(loss.d_rejected)) << name;
  }
}

}  // namespace
}  // namespace nought::preference_loss_test
