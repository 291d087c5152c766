// The losses of proximal policy optimization as objectives: their weights are the slopes of the loss.
#include "nought/nn/ppo_objective.h"

#include <cmath>

#include <gtest/gtest.h>

namespace nought::ppo_objective_test {
namespace {

/// Two answers of two and three tokens behind two tokens of a prompt each.
std::shared_ptr<PpoTargets> targets() {
  return std::make_shared<PpoTargets>(
      PpoTargets{.answers = {{.begin = 2, .written = {-1.0F, -0.4F}, .advantages = {0.7, -1.2}},
                             {.begin = 2, .written = {-2.0F, -0.9F, -1.5F}, .advantages = {0.3, 0.9, -0.4}}},
                 .old_values = {0.1, 0.2, -0.3},
                 .returns = {0.5, -0.4, 0.3}});
}

Batch answers(Memory& memory) {
  const std::vector<int32_t> ids(7), of{-1, 0, 0, -1, 1, 1, 1};
  const std::vector<float> places{0, 2, 3, 0, 2, 3, 4};
  Batch batch{.input_ids = Tensor::of<int32_t>(memory, {1, 7}, ids),
              .targets = Tensor::of<int32_t>(memory, {1, 7}, ids)};
  batch.sequences.all = {{.number = 0, .targets = 2}, {.number = 1, .targets = 3}};
  batch.sequences.of_target = Tensor::of<int32_t>(memory, {1, 7}, of);
  batch.sequences.written = Tensor::of<float>(memory, {1, 7}, places);
  return batch;
}

TEST(PpoObjective, weights_are_the_slopes_of_the_loss) {
  const Context context = Context::reference();
  const Batch batch = answers(*context.memory);
  const PpoObjective objective({}, 0.7, targets());
  EXPECT_EQ(objective.weight(batch), 5);
  const std::vector<double> losses{0, 1.05, 0.9, 0, 1.7, 0.95, 1.45};
  const WeighedObjective::Weighed at = objective.weigh(context, batch, losses, nullptr);
  constexpr double kStep = 1e-5;
  for (size_t i = 0; i < losses.size(); ++i) {
    const auto moved = [&](double step) {
      std::vector<double> other = losses;
      other[i] += step;
      return objective.weigh(context, batch, other, nullptr).loss;
    };
    EXPECT_NEAR(at.weights[i], (moved(kStep) - moved(-kStep)) / (2 * kStep), 1e-6) << i;
  }
}

TEST(PpoObjective, numbers_are_those_of_the_tokens) {
  const Context context = Context::reference();
  const auto numbers = std::make_shared<PpoNumbers>();
  const PpoObjective objective({}, 1, targets(), numbers);
  // The policy that wrote, but for one token, whose ratio of e^0.5 is beyond the bound.
  const std::vector<double> losses{0, 0.5, 0.4, 0, 2.0, 0.9, 1.5}, entropies{9, 1, 2, 9, 3, 4, 5};
  const double loss =
      objective.weigh_with_entropies(context, answers(*context.memory), losses, entropies, nullptr).loss;
  EXPECT_NEAR(loss, -0.7 * 1.2 + 1.2 - 0.3 - 0.9 + 0.4, 1e-6);
  EXPECT_NEAR(numbers->loss, loss, 1e-12);
  EXPECT_EQ(numbers->tokens, 5);
  EXPECT_EQ(numbers->clipped, 1);
  EXPECT_EQ(numbers->entropy, 15);
  EXPECT_NEAR(numbers->squares, 0.25, 1e-6);
  EXPECT_NEAR(numbers->ratios, 4 + std::exp(0.5), 1e-6);
  EXPECT_EQ(PpoNumbers::of(numbers->list()).list(), numbers->list());
}

TEST(PpoObjective, values_learn_by_their_numbers_and_count_as_much_as_is_asked) {
  const auto numbers = std::make_shared<PpoNumbers>();
  const auto loss_of = loss_of_values({.value_coef = 0.5}, targets(), numbers, /*share=*/0.5);
  const std::vector<BatchSequence> places{{.number = 2}, {.number = 0}};
  const std::vector<double> values{-0.2, 0.4};  // the second is beyond the bound of 0.3
  const SequenceObjective::Loss loss = loss_of(places, values);
  EXPECT_NEAR(loss.loss, 0.5 * 0.5 * (0.5 * 0.5 + 0.2 * 0.2), 1e-12);
  EXPECT_NEAR(loss.slopes.at(0), 0.5 * (-0.2 - 0.3), 1e-12);
  EXPECT_EQ(loss.slopes.at(1), 0);
  EXPECT_EQ(numbers->values, 1);
  EXPECT_EQ(numbers->values_clipped, 0.5);
  EXPECT_NEAR(numbers->value_loss, loss.loss, 1e-12);  // half of each place, not times value_coef
}

}  // namespace
}  // namespace nought::ppo_objective_test
