// Memory of a CUDA device behind Memory: alignment, the ledger, the arena, refusals, pinned memory, poison.
#include "nought/cuda/backend/device.h"

#include <bit>
#include <cmath>
#include <cstdint>

#include "cuda_emulation/control.h"
#include "support/message_of.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/tensor/tensor.h"

namespace nought::cuda::device_test {
namespace {

using test::message_of;
using ::testing::Each;
using ::testing::HasSubstr;

struct Rank {
  std::shared_ptr<CudaDevice> device = std::make_shared<CudaDevice>(0, /*poison=*/true);
  std::shared_ptr<CudaStream> compute = device->make_compute();
  std::shared_ptr<Memory> memory = Memory::create(device);

  Tensor empty(int64_t count, DType dtype = DType::f32, Pool pool = Pool::device) const {
    return Tensor::empty(*memory, {count}, dtype, Category::activations, pool);
  }
};

int64_t free_bytes() {
  size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "the memory that is left");
  return static_cast<int64_t>(free);
}

TEST(CudaDevice, buffers_are_aligned_to_256_bytes_and_counted_as_such) {
  const Rank rank;
  for (const int64_t count : {1, 63, 64, 65, 1000}) {
    const Tensor x = rank.empty(count);
    EXPECT_EQ(std::bit_cast<uintptr_t>(x.raw()) % 256, 0);
    EXPECT_EQ(x.buffer()->bytes(), (count * 4 + 255) / 256 * 256);
  }
}

TEST(CudaDevice, the_ledger_is_what_the_device_has_given) {
  const int64_t before = free_bytes();
  {
    const Rank rank;
    const Tensor x = rank.empty(1024), y = rank.empty(4096, DType::bf16);  // sizes that blocks have
    EXPECT_EQ(before - free_bytes(), rank.memory->ledger().current_total());
    EXPECT_EQ(rank.memory->ledger().current_total(), x.bytes() + y.bytes());
  }
  EXPECT_EQ(free_bytes(), before) << "all goes back";
}

TEST(CudaDevice, steps_ask_the_device_for_nothing_once_there_is_an_arena) {
  const Rank rank;
  int64_t asked = 0;
  for (int step = 0; step < 6; ++step) {
    const Memory::Step scope(*rank.memory);
    const Tensor x = rank.empty(40000), y = rank.empty(50001);
    { const Tensor z = rank.empty(30000); }
    const Tensor w = rank.empty(20000);
    for (const Tensor* tensor : {&x, &y, &w}) EXPECT_EQ(std::bit_cast<uintptr_t>(tensor->raw()) % 256, 0);
    if (step == 3) asked = rank.memory->system_allocations();
    if (step > 3) {
      EXPECT_EQ(rank.memory->system_allocations(), asked);
    }
  }
}

TEST(CudaDevice, fresh_memory_and_what_went_back_is_nan) {
  const Rank rank;
  const auto is_nan = testing::Truly([](float value) { return std::isnan(value); });
  {
    const Tensor x = rank.empty(100);
    EXPECT_THAT(download<float>(x, *rank.compute), Each(is_nan));
    zero(x, *rank.compute);
    EXPECT_THAT(download<float>(x, *rank.compute), Each(0));
  }
  EXPECT_THAT(download<float>(rank.empty(100), *rank.compute), Each(is_nan));
}

TEST(CudaDevice, a_refusal_says_what_is_held) {
  const Rank rank;
  const Tensor x = rank.empty(1 << 20);
  emulation::set_memory_left(1 << 20);
  EXPECT_THAT(
      message_of<DeviceError>([&] { rank.empty(1 << 20); }),
      ::testing::AllOf(HasSubstr("out of memory: 4.00 MiB for activations"), HasSubstr("device   activations")));
  emulation::set_memory_left(size_t{4} << 30);
  rank.memory->set_limit(5 << 20);
  EXPECT_THAT(message_of<MemoryLimitError>([&] { rank.empty(1 << 20); }), HasSubstr("the memory budget of 5.00 MiB"));
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "nobody else is blamed";
}

TEST(CudaDevice, host_memory_is_pinned) {
  const Rank rank;
  EXPECT_EQ(rank.memory->host_pool(), Pool::host);
  const Tensor host = rank.empty(100, DType::f32, Pool::host), x = rank.empty(100);
  EXPECT_TRUE(host.on_host());
  EXPECT_FALSE(x.on_host());
  host.data<float>()[0] = 1;
  copy(host, x, *rank.compute);
  host.data<float>()[0] = 2;  // the copy has not run: what it reads is what is there then
  EXPECT_EQ(download<float>(x, *rank.compute)[0], 2);
}

TEST(CudaDevice, host_code_gets_no_bytes_of_it) {
  const Rank rank;
  const Tensor x = rank.empty(1);
  EXPECT_THAT(message_of<DeviceError>([&] { x.item(); }), HasSubstr("which lies on the device cuda:0"));
}

TEST(CudaDevice, one_that_is_not_there_is_refused) {
  EXPECT_EQ(why_no_device(), "");
  EXPECT_THAT(message_of<DeviceError>([] { CudaDevice(3); }),
              HasSubstr("cuda:3 is not there: the machine has 1 devices"));
}

}  // namespace
}  // namespace nought::cuda::device_test
