// Blocks that live together never overlap.
#include "nought/tensor/packing.h"

#include <random>

#include <gtest/gtest.h>

namespace nought::packing_test {
namespace {

void expect_sound(const std::vector<Lifetime>& blocks, const Packing& packing) {
  ASSERT_EQ(packing.offsets.size(), blocks.size());
  for (size_t i = 0; i < blocks.size(); ++i) {
    EXPECT_GE(packing.offsets[i], 0);
    EXPECT_LE(packing.offsets[i] + blocks[i].bytes, packing.bytes);
    for (size_t j = 0; j < i; ++j) {
      const bool together = blocks[i].begin < blocks[j].end && blocks[j].begin < blocks[i].end;
      const bool apart = packing.offsets[i] + blocks[i].bytes <= packing.offsets[j] ||
                         packing.offsets[j] + blocks[j].bytes <= packing.offsets[i];
      EXPECT_TRUE(!together || apart) << i << " and " << j;
    }
  }
  EXPECT_GE(packing.bytes, packing.alive);
}

TEST(Packing, blocks_that_live_one_after_another_share_a_place) {
  const std::vector<Lifetime> blocks{{128, 0, 2}, {128, 2, 4}, {64, 3, 5}};
  const Packing packing = pack(blocks);
  expect_sound(blocks, packing);
  EXPECT_EQ(packing.alive, 192);
  EXPECT_EQ(packing.bytes, 192);
}

TEST(Packing, a_stack_of_blocks_leaves_no_gap) {
  std::vector<Lifetime> blocks;  // as activations: kept in the forward pass, freed in the backward pass
  constexpr int64_t kLayers = 24;
  for (int64_t i = 0; i < kLayers; ++i) {
    blocks.push_back({64 * (1 + i % 5), 10 * i, 1000 - 10 * i});
    blocks.push_back({640, 10 * i + 1, 10 * i + 3});
    blocks.push_back({704, 1000 - 10 * i - 5, 1000 - 10 * i - 1});
  }
  const Packing packing = pack(blocks);
  expect_sound(blocks, packing);
  EXPECT_EQ(packing.bytes, packing.alive);
}

TEST(Packing, any_lifetimes_are_packed_soundly) {
  std::mt19937 random(5);
  for (int round = 0; round < 10; ++round) {
    std::vector<Lifetime> blocks;
    for (int i = 0; i < 60; ++i) {
      const int64_t begin = random() % 100;
      blocks.push_back(
          {64 * static_cast<int64_t>(1 + random() % 40), begin, begin + 1 + static_cast<int64_t>(random() % 30)});
    }
    expect_sound(blocks, pack(blocks));
  }
}

}  // namespace
}  // namespace nought::packing_test
