#include "nought/zero/tree_sums.h"

#include "support/temp_folder.h"
#include <gtest/gtest.h>

namespace nought::tree_sums_test {
namespace {

/// Values whose sums depend on their order.
std::vector<float> values_of(int64_t micro_batch) {
  const auto m = static_cast<float>(micro_batch);
  return {1.0f + m * 1e-7f, 1e8f * (micro_batch % 2 == 0 ? 1.0f : -1.0f) + m, 0.1f * m};
}

/// The sum over micro-batches [begin, end), as many as a power of two.
std::vector<float> tree_of(int64_t begin, int64_t end) {
  if (end - begin == 1) return values_of(begin);
  const int64_t middle = (begin + end) / 2;
  std::vector<float> left = tree_of(begin, middle);
  const std::vector<float> right = tree_of(middle, end);
  for (size_t i = 0; i < left.size(); ++i) left[i] += right[i];
  return left;
}

std::vector<Tensor> rooms(const Context& context, int levels, int64_t numel = 3) {
  std::vector<Tensor> all;
  for (int i = 0; i < levels; ++i) all.push_back(context.zeros({numel}, DType::f32));
  return all;
}

TEST(TreeSums, add_micro_batches_in_a_binary_tree) {
  const Context context = Context::cpu();
  for (const int64_t micro_batches : {2, 4, 8, 16}) {
    const std::vector<Tensor> sums = rooms(context, TreeSums::levels_of(micro_batches));
    TreeSums tree(sums);
    for (int step = 0; step < 2; ++step) {
      for (int64_t i = 0; i < micro_batches; ++i) {
        const Tensor place = tree.place_of(i), values = Tensor::of<float>(*context.memory, {3}, values_of(i));
        EXPECT_EQ(place.defined(), i % 2 == 0);
        if (place && step == 0) context.copy(values, place);
        tree.add(context, i, place && step == 0 ? place : values, i + 1 == micro_batches);
      }
      EXPECT_EQ(sums.front().to_vector<float>(), tree_of(0, micro_batches)) << micro_batches;
      tree.reset();
    }
  }
}

TEST(TreeSums, take_micro_batches_that_gave_nothing_for_zeros) {
  const Context context = Context::cpu();
  const std::vector<Tensor> sums = rooms(context, 3, 1);
  TreeSums tree(sums);
  const auto add = [&](int64_t micro_batch, float value) {
    tree.add(context, micro_batch, Tensor::of<float>(*context.memory, {1}, std::vector<float>{value}), false);
  };
  add(1, 1), add(4, 1e8f), add(5, -1e8f);
  tree.finish(context, 8, 1, DType::f32);
  // 1 + (1e8 - 1e8); in places one behind the other it would be (1 + 1e8) - 1e8, which is 0.
  EXPECT_EQ(sums.front().to_vector<float>(), (std::vector<float>{1}));
  EXPECT_THROW(tree.add(context, 8, sums.front(), true), Error);
}

TEST(TreeSums, of_fewer_micro_batches_than_expected_end_in_the_first_sum_too) {
  const Context context = Context::cpu();
  for (int64_t count = 1; count <= 8; ++count) {
    const std::vector<Tensor> sums = rooms(context, 3);
    TreeSums tree(sums);
    for (int64_t i = 0; i < count; ++i)
      tree.add(context, i, Tensor::of<float>(*context.memory, {3}, std::vector<float>{1, 2, 3}), i + 1 == count);
    const auto n = static_cast<float>(count);
    EXPECT_EQ(sums.front().to_vector<float>(), (std::vector<float>{n, 2 * n, 3 * n})) << count;
  }
}

TEST(TreeSums, in_files_have_the_bits_of_those_in_memory) {
  const Context context = Context::cpu();
  const test::TempFolder folder;
  GradientStore store(context, DType::f32, {.pool = Pool::file, .folder = folder.path().string()}, "rank 0");
  std::vector<OffloadPool::Slot> slots;
  for (int i = 0; i < 3; ++i) slots.push_back(store.add(3, {}));
  store.open();
  TreeSums tree(store, slots);
  for (int64_t i = 0; i < 8; ++i) tree.add(context, i, Tensor::of<float>(*context.memory, {3}, values_of(i)), i == 7);
  store.settle();
  EXPECT_EQ(store.values(slots.front()).to_vector<float>(), tree_of(0, 8));
}

}  // namespace
}  // namespace nought::tree_sums_test
