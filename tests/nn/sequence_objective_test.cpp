#include "nought/nn/sequence_objective.h"

#include <gtest/gtest.h>

namespace nought::sequence_objective_test {
namespace {

/// Two targets of a chosen answer, one of no answer, and one of a rejected answer.
Batch pair(const Context& context) {
  const auto integers = [&](const std::vector<int32_t>& values) {
    return Tensor::of<int32_t>(*context.memory, {1, 4}, values);
  };
  Batch batch{integers({1, 2, 3, 4}), integers({2, 3, kIgnoredTarget, 5})};
  batch.sequences = {.all = {{.number = 0, .targets = 2, .reference = -1}, {.number = 1, .targets = 1}},
                     .of_target = integers({0, 0, -1, 1})};
  return batch;
}

TEST(SequenceObjective, targets_have_the_slope_of_their_sequence) {
  const Context context = Context::reference();
  const auto sums = std::make_shared<SequenceSums>(2);
  const PairLossOptions options;
  const SequenceObjective objective(loss_of_pairs(options), 2, sums);
  const std::vector<double> losses{0.5, 1.5, 9, 3};
  const auto weighed = objective.weigh(context, pair(context), losses, nullptr);
  EXPECT_EQ(*sums, (SequenceSums{-2, -3}));
  const PairLoss expected = pair_loss(options, {-2, -1, 2}, {-3, 0, 1});
  EXPECT_DOUBLE_EQ(weighed.loss, expected.loss);
  const auto c = static_cast<float>(-expected.d_chosen), r = static_cast<float>(-expected.d_rejected);
  EXPECT_EQ(weighed.weights, (std::vector<float>{c, c, 0, r}));
  EXPECT_EQ(objective.weight(pair(context)), 1);
}

TEST(SequenceObjective, a_target_that_counts_less_and_the_likelihood_beside) {
  const Context context = Context::reference();
  Batch batch = pair(context);
  batch.weights = Tensor::of<float>(*context.memory, {1, 4}, std::vector<float>{1, 0.5, 1, 1});
  batch.sequences.likelihood = Tensor::of<float>(*context.memory, {1, 4}, std::vector<float>{2, 2, 0, 0});
  const auto sums = std::make_shared<SequenceSums>(2);
  const SequenceObjective objective(
      [](std::span<const BatchSequence>, std::span<const double> values) {
        return SequenceObjective::Loss{values[0], {1, 0}};
      },
      2, sums);
  const auto weighed = objective.weigh(context, batch, std::vector<double>{0.5, 1.5, 9, 3}, nullptr);
  EXPECT_EQ(sums->front(), -1.25);
  EXPECT_EQ(weighed.loss, -1.25 + 2 * (0.5 + 1.5));
  EXPECT_EQ(weighed.weights, (std::vector<float>{2 - 1, 2 - 0.5, 0, 0}));
}

}  // namespace
}  // namespace nought::sequence_objective_test
