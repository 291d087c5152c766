#include "nought/nn/context_batch.h"

#include <gtest/gtest.h>

namespace nought::context_batch_test {
namespace {

TEST(ContextBatch, tokens_targets_and_weights_are_cut_alike) {
  const Context context = Context::cpu();
  Memory& memory = *context.memory;
  const Shape shape{2, 5};
  const Batch batch{Tensor::of<int32_t>(memory, shape, std::vector{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}),
                    Tensor::of<int32_t>(memory, shape, std::vector{10, 11, 12, 13, 14, 15, 16, 17, 18, 19}),
                    {{0, 2}, {0}},
                    Tensor::of<float>(memory, shape, std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9})};
  ContextTokens tokens{.rows = 2, .length = 5};  // chunks [0, 1), [1, 2), [2, 3), [3, 5)
  tokens.ranks.ranks = 2;
  const Batch first = part_of(context, batch, tokens);
  EXPECT_EQ(first.input_ids.shape(), Shape({2, 3}));
  EXPECT_EQ(first.input_ids.to_vector<int32_t>(), (std::vector{0, 3, 4, 5, 8, 9}));
  EXPECT_EQ(first.targets.to_vector<int32_t>(), (std::vector{10, 13, 14, 15, 18, 19}));
  EXPECT_EQ(first.weights.to_vector<float>(), (std::vector<float>{0, 3, 4, 5, 8, 9}));
  EXPECT_TRUE(first.document_starts.empty());
  tokens.ranks.rank = 1;
  const Batch second = part_of(context, {batch.input_ids, {}}, tokens);
  EXPECT_EQ(second.input_ids.to_vector<int32_t>(), (std::vector{1, 2, 6, 7}));
  EXPECT_FALSE(second.targets.defined() || second.weights.defined());
}

}  // namespace
}  // namespace nought::context_batch_test
