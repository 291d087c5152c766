// A step that is like the one before asks the system for nothing.
#include "nought/tensor/arena.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "nought/tensor/tensor.h"

namespace nought::arena_test {
namespace {

constexpr int64_t kBlock = 2 * StepArena::kLeastBytes;

/// A step of `blocks` requests, all alive at once, then some more one after another.
void take_step(Memory& memory, int blocks) {
  const Memory::Step step(memory);
  std::vector<std::shared_ptr<Buffer>> held;
  for (int i = 0; i < blocks; ++i) {
    held.push_back(memory.allocate(kBlock * (1 + i % 3), Category::activations));
    std::fill_n(held.back()->data(), held.back()->bytes(), std::byte{1});
  }
  for (int i = 0; i < 5; ++i) memory.allocate(4 * kBlock, Category::workspace);
  for (size_t i = 0; i < held.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      EXPECT_TRUE(held[i]->data() + held[i]->bytes() <= held[j]->data() ||
                  held[j]->data() + held[j]->bytes() <= held[i]->data());
}

TEST(StepArena, steps_after_the_second_ask_the_system_for_nothing) {
  const auto memory = Memory::create();
  for (int step = 0; step < 2; ++step) take_step(*memory, 9);
  const int64_t asked = memory->system_allocations();
  for (int step = 0; step < 5; ++step) take_step(*memory, 9);
  EXPECT_EQ(memory->system_allocations(), asked);
  EXPECT_EQ(memory->fragmentation(), 0);
}

TEST(StepArena, blocks_that_outlive_their_step_stay_valid) {
  const auto memory = Memory::create();
  std::vector<std::shared_ptr<Buffer>> kept;
  for (int step = 0; step < 6; ++step) {
    const Memory::Step scope(*memory);
    const auto passing = memory->allocate(kBlock, Category::activations);
    kept.push_back(memory->allocate(kBlock, Category::parameters));
    std::fill_n(kept.back()->data(), kBlock, static_cast<std::byte>(step));
    std::fill_n(passing->data(), kBlock, std::byte{99});
  }
  for (int step = 0; step < 6; ++step)
    EXPECT_EQ(kept[static_cast<size_t>(step)]->data()[17], static_cast<std::byte>(step));
}

TEST(StepArena, a_block_held_for_longer_than_before_is_not_overwritten) {
  const auto memory = Memory::create();
  std::shared_ptr<Buffer> held;
  for (int step = 0; step < 4; ++step) {
    const Memory::Step scope(*memory);
    std::shared_ptr<Buffer> first = memory->allocate(kBlock, Category::activations);
    std::fill_n(first->data(), kBlock, std::byte{7});
    if (step == 3) held = first;
    first.reset();
    const auto second = memory->allocate(kBlock, Category::activations);
    std::fill_n(second->data(), kBlock, std::byte{8});
  }
  EXPECT_EQ(held->data()[0], std::byte{7});
}

TEST(StepArena, steps_that_differ_are_served_all_the_same) {
  const auto memory = Memory::create();
  for (const int blocks : {9, 9, 9, 4, 12, 12, 3, 9, 15, 15, 15, 15, 2}) take_step(*memory, blocks);
  EXPECT_EQ(memory->ledger().current_total(), 0);
}

}  // namespace
}  // namespace nought::arena_test
