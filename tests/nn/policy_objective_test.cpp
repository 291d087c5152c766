#include "nought/nn/policy_objective.h"

#include <cmath>

#include <gtest/gtest.h>

namespace nought::policy_objective_test {
namespace {

/// Two answers of two and three tokens behind a token of a prompt, in one row.
Batch answers(Memory& memory) {
  const std::vector<int32_t> ids(7), of{-1, 0, 0, -1, 1, 1, 1};
  Batch batch{.input_ids = Tensor::of<int32_t>(memory, {1, 7}, ids),
              .targets = Tensor::of<int32_t>(memory, {1, 7}, ids)};
  batch.sequences.all = {{.number = 0, .targets = 2, .wanted = {0.8}}, {.number = 1, .targets = 3, .wanted = {-1.1}}};
  batch.sequences.of_target = Tensor::of<int32_t>(memory, {1, 7}, of);
  const std::vector<float> written{0, -1.0F, -0.4F, 0, -2.0F, -0.9F, -1.5F},
      known{0, -1.2F, -0.6F, 0, -1.7F, -1.0F, -1.3F};
  batch.sequences.written = Tensor::of<float>(memory, {1, 7}, written);
  batch.sequences.known = Tensor::of<float>(memory, {1, 7}, known);
  return batch;
}

TEST(PolicyObjective, weights_are_the_slopes_of_the_loss_for_tokens_and_whole_answers) {
  const Context context = Context::reference();
  const Batch batch = answers(*context.memory);
  const std::vector<double> losses{0, 1.05, 0.42, 0, 1.93, 0.95, 1.49};
  constexpr double kStep = 1e-5;
  for (const auto& [level, sums] :
       {std::pair{ImportanceLevel::token, false}, std::pair{ImportanceLevel::sequence, false},
        std::pair{ImportanceLevel::sequence, true}})
    for (const PolicyLossType type : {PolicyLossType::dapo, PolicyLossType::grpo, PolicyLossType::dr_grpo}) {
      const PolicyObjective objective(
          {.type = type, .beta = 0.2, .level = level, .sums_ratios = sums, .max_completion_length = 5});
      const WeighedObjective::Weighed at = objective.weigh(context, batch, losses, nullptr);
      for (size_t i = 0; i < losses.size(); ++i) {
        const auto moved = [&](double step) {
          std::vector<double> other = losses;
          other[i] += step;
          return objective.weigh(context, batch, other, nullptr).loss;
        };
        EXPECT_NEAR(at.weights[i], (moved(kStep) - moved(-kStep)) / (2 * kStep), 1e-6) << i;
      }
    }
}

TEST(PolicyObjective, of_whole_answers_is_the_ratio_of_their_probabilities) {
  const Context context = Context::reference();
  const auto numbers = std::make_shared<PolicyNumbers>();
  const PolicyObjective objective(
      {.type = PolicyLossType::grpo, .level = ImportanceLevel::sequence, .sums_ratios = true}, numbers);
  const std::vector<double> losses{0, 0.95, 0.32, 0, 2.0, 0.9, 1.4};
  const WeighedObjective::Weighed at = objective.weigh(context, answers(*context.memory), losses, nullptr);
  const double free = std::exp(0.1);  // the second answer's ratio
  EXPECT_NEAR(at.loss, -0.8 * std::exp(0.13) + 1.1 * free, 1e-6);
  EXPECT_NEAR(at.weights[1], 0.8 * std::exp(0.13), 1e-6);
  EXPECT_NEAR(at.weights[6], -1.1 * free, 1e-6);
  EXPECT_EQ(at.weights[0], 0);
  EXPECT_NEAR(numbers->ratios, 2, 1e-12);
}

TEST(PolicyObjective, learns_nothing_from_answers_that_do_not_count) {
  const Context context = Context::reference();
  const std::vector<double> losses{0, 1.05, 0.42, 0, 1.93, 0.95, 1.49};
  Batch batch = answers(*context.memory);
  const PolicyObjective objective({.type = PolicyLossType::grpo, .beta = 0.2});
  const double both = objective.weigh(context, batch, losses, nullptr).loss;
  batch.sequences.all[0].wanted = {0.8, 0};
  const WeighedObjective::Weighed second = objective.weigh(context, batch, losses, nullptr);
  batch.sequences.all[0].wanted = {0.8, 1}, batch.sequences.all[1].wanted = {-1.1, 0};
  EXPECT_NEAR(second.loss + objective.weigh(context, batch, losses, nullptr).loss, both, 1e-12);
  EXPECT_EQ(second.weights[1], 0);
  EXPECT_NE(second.weights[4], 0);
  EXPECT_EQ(objective.weight(batch), 2);
  EXPECT_EQ(PolicyObjective({.type = PolicyLossType::dapo}).weight(batch), 2);  // the first one's tokens
}

TEST(PolicyObjective, counts_tokens_or_answers_and_what_was_clipped) {
  const Context context = Context::reference();
  const Batch batch = answers(*context.memory);
  EXPECT_EQ(PolicyObjective({.type = PolicyLossType::dapo}).weight(batch), 5);
  EXPECT_EQ(PolicyObjective({.type = PolicyLossType::grpo}).weight(batch), 2);
  const auto numbers = std::make_shared<PolicyNumbers>();
  numbers->answers.resize(2);
  const PolicyObjective objective({.temperature = 0.5}, numbers);
  EXPECT_EQ(objective.temperature(), 0.5);
  // The first answer's tokens are likelier than they were, the second's less likely.
  objective.weigh(context, batch, std::vector<double>{0, 0.2, 0.38, 0, 3, 0.95, 1.49}, nullptr);
  EXPECT_EQ(numbers->tokens, 5);
  EXPECT_EQ(numbers->high_clipped, 1);
  EXPECT_EQ(numbers->low_clipped, 1);
  EXPECT_EQ(numbers->answers[0].high_clipped / numbers->answers[0].ratios, 0.5);
  EXPECT_EQ(numbers->answers[1].low_clipped / numbers->answers[1].ratios, 1.0 / 3);
}

}  // namespace
}  // namespace nought::policy_objective_test
