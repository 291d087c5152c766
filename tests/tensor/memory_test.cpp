#include "nought/tensor/memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "support/guarded_device.h"
#include "support/host_tensors.h"
#include "support/message_of.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include "nought/tensor/tensor.h"

namespace nought::memory_test {
namespace {

TEST(Ledger, counts_what_is_alive_by_category_and_remembers_the_peak) {
  auto memory = Memory::create();
  {
    Tensor a = Tensor::empty(*memory, {1024}, DType::f32, Category::parameters);
    {
      Tensor b = Tensor::empty(*memory, {100}, DType::bf16, Category::activations);
      EXPECT_EQ(memory->ledger().current(Category::activations), 256);  // 200 bytes, rounded up to 64
    }
    EXPECT_EQ(memory->ledger().current_total(), 4096);
  }
  EXPECT_EQ(memory->ledger().current_total(), 0);
  EXPECT_EQ(memory->ledger().peak_total(), 4096 + 256);
  EXPECT_EQ(memory->ledger().at_peak(Category::parameters), 4096);
}

TEST(Memory, counts_what_it_adopted_and_gives_it_back_to_its_owner) {
  const auto memory = Memory::create();
  const std::shared_ptr<void> block(std::malloc(4096), [](void* data) { std::free(data); });
  {
    const Tensor tensor(memory->adopt(block, 4096, Category::communication), 0, {1024}, DType::f32);
    EXPECT_EQ(tensor.raw(), block.get());
    EXPECT_EQ(block.use_count(), 2);
    EXPECT_EQ(memory->ledger().current(Category::communication), 4096);
  }
  EXPECT_EQ(block.use_count(), 1);
  EXPECT_EQ(memory->ledger().current_total(), 0);
  memory->set_limit(4095);
  EXPECT_THROW(memory->adopt(block, 4096, Category::communication), MemoryLimitError);
}

TEST(Memory, reuses_freed_blocks) {
  auto memory = Memory::create();
  for (int i = 0; i < 10; ++i) Tensor::empty(*memory, {1000 + i}, DType::f32, Category::workspace);
  EXPECT_EQ(memory->system_allocations(), 1);
}

TEST(Memory, zeros_are_zero_and_touch_no_page_that_comes_fresh_from_the_system) {
  const auto memory = Memory::create();
  constexpr int64_t kBytes = 8 << 20, kPage = 4096;
  const auto zeros = [&] { return Tensor::zeros(*memory, {kBytes}, DType::u8, Category::workspace); };
  Tensor fresh = zeros();
  std::vector<unsigned char> resident(kBytes / kPage);
  ASSERT_EQ(mincore(fresh.raw(), kBytes, resident.data()), 0);
  EXPECT_EQ(std::count(resident.begin(), resident.end(), 0), kBytes / kPage);
  const std::vector<uint8_t> none(kBytes, 0);
  EXPECT_EQ(std::memcmp(fresh.raw(), none.data(), kBytes), 0);
  std::memset(fresh.raw(), 7, kBytes);
  const std::byte* const before = fresh.raw();
  fresh = {};
  const Tensor reused = zeros();
  EXPECT_EQ(reused.raw(), before);
  EXPECT_EQ(std::memcmp(reused.raw(), none.data(), kBytes), 0);
}

TEST(Memory, no_tensor_lies_in_a_file) {
  const auto memory = Memory::create();
  EXPECT_EQ(test::message_of<DeviceError>([&] { memory->allocate(1 << 20, Category::optimizer, Pool::file); }),
            "cannot allocate 1.00 MiB for optimizer in a file: no storage of tensors in files is there");
  EXPECT_EQ(memory->ledger().current_total(Pool::file), 0);
}

TEST(Memory, virtual_memory_is_counted_and_costs_nothing) {
  auto memory = Memory::create_virtual();
  constexpr int64_t kElements = int64_t{1} << 38;  // a terabyte of fp32
  const Tensor huge = Tensor::zeros(*memory, {kElements}, DType::f32, Category::parameters);
  EXPECT_EQ(memory->ledger().current(Category::parameters), 4 * kElements);
  test::copy(huge.flat(0, kElements / 2), huge.flat(kElements / 2, kElements));
  huge.data<float>()[kElements - 1] = 3;  // a few values may be kept
  EXPECT_EQ(huge.flat(kElements - 1, kElements).item(), 3);
}

TEST(Memory, a_budget_refuses_what_exceeds_it_and_nothing_else) {
  auto memory = Memory::create();
  memory->set_limit(1024);
  const auto held = memory->allocate(1000, Category::gradients);  // counted as 1024
  EXPECT_THROW(memory->allocate(1, Category::activations), MemoryLimitError);
  EXPECT_NO_THROW(memory->allocate(1 << 20, Category::optimizer, Pool::host)) << "the budget is of the device";
  memory->set_limit(0);
  EXPECT_NO_THROW(memory->allocate(1, Category::activations));
}

TEST(Memory, a_budget_of_the_host_is_for_all_that_is_in_its_ram) {
  const auto memory = Memory::create();
  memory->set_limit(1024, Pool::host);
  const auto on_device = memory->allocate(512, Category::gradients);
  const auto held = memory->allocate(512, Category::optimizer, Pool::host);
  EXPECT_EQ(memory->peak_in_ram(), 1024);
  EXPECT_THAT(test::message_of<MemoryLimitError>([&] { memory->allocate(1, Category::activations); }),
              testing::HasSubstr("the host memory budget of 1.00 KiB does not hold another 64 B for activations: "
                                 "1.00 KiB are in use"));
  EXPECT_THAT(
      test::message_of<MemoryLimitError>([&] { memory->allocate(1, Category::workspace, Pool::host); }),
      testing::AllOf(testing::HasSubstr("1 x 512 B optimizer on the host"), testing::HasSubstr("1 x 512 B gradients")));
  memory->set_limit(0, Pool::host);
  EXPECT_NO_THROW(memory->allocate(1, Category::activations));
  EXPECT_THROW(memory->set_limit(1, Pool::file), DeviceError);
}

TEST(Memory, beside_another_device_a_budget_of_the_host_is_for_the_host_pool) {
  const auto memory = Memory::create(std::make_shared<test::GuardedDevice>());
  memory->set_limit(1024, Pool::host);
  const auto on_device = memory->allocate(4096, Category::gradients);
  const auto held = memory->allocate(1024, Category::optimizer, Pool::host);
  EXPECT_EQ(memory->peak_in_ram(), 1024);
  EXPECT_THROW(memory->allocate(1, Category::optimizer, Pool::host), MemoryLimitError);
}

TEST(Memory, copies_between_pools_are_counted) {
  const auto memory = Memory::create();
  const Tensor here = Tensor::zeros(*memory, {100}, DType::f32, Category::activations);
  const Tensor there = Tensor::zeros(*memory, {100}, DType::f32, Category::activations, Pool::host);
  test::copy(here, there);
  test::copy(there.flat(0, 10), here.flat(0, 10));
  test::copy(here.flat(0, 10), here.flat(10, 20));
  EXPECT_EQ(memory->ledger().moved(Pool::device, Pool::host), 400);
  EXPECT_EQ(memory->ledger().moved(Pool::host, Pool::device), 40);
  EXPECT_EQ(memory->ledger().moved(Pool::device, Pool::device), 0);
}

TEST(Memory, buffers_are_aligned_and_counted_in_whole_lines) {
  const auto memory = Memory::create();
  for (const int64_t bytes : {1, 63, 64, 65, 4097}) {
    const auto buffer = memory->allocate(bytes, Category::workspace);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % 64, 0u);
    EXPECT_EQ(memory->ledger().current(Category::workspace), (bytes + 63) / 64 * 64);
  }
}

TEST(Ledger, peaks_restart_from_what_is_alive) {
  MemoryLedger ledger;
  ledger.add(Category::gradients, Pool::device, 100);
  ledger.add(Category::gradients, Pool::host, 7);
  ledger.add(Category::optimizer, Pool::device, 50);
  ledger.remove(Category::gradients, Pool::device, 60);
  EXPECT_EQ(ledger.peak(Category::gradients), 100);
  EXPECT_EQ(ledger.peak_total(), 150);
  EXPECT_EQ(ledger.current_total(Pool::host), 7) << "pools are apart";
  ledger.reset_peaks();
  EXPECT_EQ(ledger.peak(Category::gradients), 40);
  EXPECT_EQ(ledger.peak_total(), 90);
  EXPECT_EQ(ledger.at_peak(Category::optimizer), 50);
}

}  // namespace
}  // namespace nought::memory_test
