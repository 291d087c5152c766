#include "nought/nn/score_loss.h"

#include <cmath>

#include "support/message_of.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/base/error.h"

namespace nought::score_loss_test {
namespace {

using testing::HasSubstr;

TEST(ScoreLoss, is_that_of_transformers_for_each_problem) {
  const std::vector<double> scores{1, -0.5, 2};
  const double sum = std::exp(1) + std::exp(-0.5) + std::exp(2);
  EXPECT_NEAR(score_loss(ProblemType::single_label_classification, scores, std::vector{2.0}).loss, std::log(sum) - 2,
              1e-12);
  EXPECT_NEAR(score_loss(ProblemType::regression, scores, std::vector{0.0, 0.5, 2.5}).loss, (1 + 1 + 0.25) / 3, 1e-12);
  const auto cross = [](double x, double y) {
    const double p = 1 / (1 + std::exp(-x));
    return -y * std::log(p) - (1 - y) * std::log(1 - p);
  };
  EXPECT_NEAR(score_loss(ProblemType::multi_label_classification, scores, std::vector{1.0, 0.0, 0.25}).loss,
              (cross(1, 1) + cross(-0.5, 0) + cross(2, 0.25)) / 3, 1e-12);
  EXPECT_EQ(best_class(scores), 2);
}

TEST(ScoreLoss, derivatives_are_the_slopes) {
  constexpr double kStep = 1e-6;
  const std::vector<std::pair<ProblemType, std::vector<double>>> cases{
      {ProblemType::single_label_classification, {1}},
      {ProblemType::regression, {0.3, -2, 1}},
      {ProblemType::multi_label_classification, {1, 0, 0.7}}};
  for (const auto& [problem, wanted] : cases) {
    const std::vector<double> scores{0.4, -1.1, 0.9};
    const ScoreLoss loss = score_loss(problem, scores, wanted);
    for (size_t i = 0; i < scores.size(); ++i) {
      std::vector<double> up = scores, down = scores;
      up[i] += kStep, down[i] -= kStep;
      EXPECT_NEAR(loss.slopes[i],
                  (score_loss(problem, up, wanted).loss - score_loss(problem, down, wanted).loss) / (2 * kStep), 1e-8);
    }
  }
  const RewardLoss reward = reward_loss(0.6, -0.2, 0.3, 0.05);
  EXPECT_NEAR(reward.loss, std::log1p(std::exp(-0.5)) + 0.05 * 0.16, 1e-12);
  EXPECT_NEAR(
      reward.d_chosen,
      (reward_loss(0.6 + kStep, -0.2, 0.3, 0.05).loss - reward_loss(0.6 - kStep, -0.2, 0.3, 0.05).loss) / (2 * kStep),
      1e-8);
  EXPECT_NEAR(
      reward.d_rejected,
      (reward_loss(0.6, -0.2 + kStep, 0.3, 0.05).loss - reward_loss(0.6, -0.2 - kStep, 0.3, 0.05).loss) / (2 * kStep),
      1e-8);
}

TEST(ScoreLoss, refuses_what_no_classifier_can_say) {
  const auto refusal = [](ProblemType problem, const std::vector<double>& wanted) {
    return test::message_of<ConfigError>([&] { require_wanted(problem, 2, wanted); });
  };
  EXPECT_THAT(refusal(ProblemType::single_label_classification, {0.5}), HasSubstr("from 0 to 1, got 0.5"));
  EXPECT_THAT(refusal(ProblemType::single_label_classification, {2}), HasSubstr("one of 2 classes"));
  EXPECT_THAT(refusal(ProblemType::regression, {1}), HasSubstr("has 2 labels, and here are the numbers of 1"));
  EXPECT_THAT(refusal(ProblemType::multi_label_classification, {1, 2}), HasSubstr("numbers from 0 to 1"));
}

}  // namespace
}  // namespace nought::score_loss_test
