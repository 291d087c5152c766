// Memory of the device this program runs on, a GPU or the emulated one: what the driver counts, and what it refuses.
#include <cmath>

#include "support/message_of.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/cuda/backend/kernels.h"

namespace nought::cuda::memory_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct MemoryOfDevice {
  int64_t free = 0, total = 0;
};
MemoryOfDevice memory_of_device() {
  size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "the memory that is left");
  return {static_cast<int64_t>(free), static_cast<int64_t>(total)};
}

TEST(CudaMemory, the_ledger_is_what_the_driver_counts) {
  constexpr int64_t kGranularity = 2 << 20;  // of a GPU's pages
  make_context();                            // what the driver keeps for itself is taken
  const int64_t at_first = memory_of_device().free;
  {
    const Context context = make_context();
    const int64_t before = memory_of_device().free;
    const Tensor x = context.empty({16 << 20}, DType::f32), y = context.empty({24 << 20}, DType::bf16);
    const int64_t given = before - memory_of_device().free, counted = context.memory->ledger().current_total();
    EXPECT_GE(counted, x.bytes() + y.bytes());
    EXPECT_NEAR(static_cast<double>(given), static_cast<double>(counted), 2.0 * kGranularity);
  }
  EXPECT_NEAR(static_cast<double>(at_first - memory_of_device().free), 0, 2.0 * kGranularity) << "all goes back";
}

TEST(CudaMemory, a_refusal_of_the_device_says_what_is_held_and_work_goes_on) {
  const Context context = make_context();
  const Tensor held = context.zeros({1 << 20}, DType::f32);
  const int64_t too_many = memory_of_device().total / 4 + (1 << 20);
  EXPECT_THAT(test::message_of<DeviceError>([&] { context.empty({too_many}, DType::f32); }),
              AllOf(HasSubstr("out of memory"), HasSubstr("for activations"), HasSubstr("4.00 MiB")));
  context.run(Fill{.x = held, .value = 3});
  EXPECT_EQ(context.to_host<float>(held).back(), 3);
}

TEST(CudaMemory, copies_from_and_to_pinned_memory_are_whole) {
  const Context context = make_context();
  constexpr int64_t kCount = (4 << 20) + 3;
  const Tensor out = Tensor::empty(*context.memory, {kCount}, DType::f32, Category::activations, Pool::host);
  const Tensor in = Tensor::empty(*context.memory, {kCount}, DType::f32, Category::activations, Pool::host);
  for (int64_t i = 0; i < kCount; ++i) out.data<float>()[i] = static_cast<float>(i % 977);
  const Tensor there = context.empty({kCount}, DType::f32);
  context.copy(out, there);
  context.copy(there, in);
  context.stream->synchronize();
  int64_t wrong = 0;
  for (int64_t i = 0; i < kCount; ++i) wrong += in.data<float>()[i] == static_cast<float>(i % 977) ? 0 : 1;
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace nought::cuda::memory_test
