// The emulated GPU finds what is undefined on one: each test has a kernel with a mistake, and what is said of it.
#include <numeric>
#include <vector>

#include "cuda_emulation/control.h"
#include "support/message_of.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/cuda/backend/kernel.h"
#include "nought/cuda/backend/runtime.h"

namespace nought::cuda::emulation_test {
namespace {

using test::message_of;
using ::testing::HasSubstr;

class Emulation : public ::testing::Test {
 protected:
  Emulation() { cudaStreamCreateWithFlags(&where_.stream, cudaStreamNonBlocking); }
  ~Emulation() override {
    cudaStreamDestroy(where_.stream);
    emulation::set_order(0);
  }
  /// What a kernel on 64 threads of one block ends with; empty if nothing is wrong.
  template <class... Expected, class... Given>
  std::string run(void (*kernel)(Expected...), Given... arguments) {
    launch(where_, 1, dim3(64), kernel, arguments...);
    return synchronized();
  }
  std::string synchronized() {
    const cudaError_t result = cudaStreamSynchronize(where_.stream);
    return result == cudaSuccess ? "" : cudaGetErrorString(result);
  }
  template <class T>
  T* values(size_t count) {
    void* at = nullptr;
    check(cudaMalloc(&at, count * sizeof(T)), "memory");
    return static_cast<T*>(at);
  }

  Launch where_;
};

__global__ void reverse_kernel(int* x, bool waits) {
  NOUGHT_SHARED(int, tile, 64);
  tile[threadIdx.x] = static_cast<int>(threadIdx.x);
  if (waits) __syncthreads();
  x[threadIdx.x] = tile[63 - threadIdx.x];
}

TEST_F(Emulation, a_missing_barrier_is_named) {
  int* const x = values<int>(64);
  EXPECT_EQ(run(reverse_kernel, x, true), "");
  EXPECT_EQ(x[0], 63);
  for (const emulation::Order order : {0u, 1u, 9u}) {
    emulation::set_order(order);
    cudaStreamDestroy(where_.stream);  // a stream that failed stays so
    cudaStreamCreateWithFlags(&where_.stream, cudaStreamNonBlocking);
    const std::string said = run(reverse_kernel, x, false);
    EXPECT_THAT(said, HasSubstr("shared array of emulation_test.cpp:")) << order;
    EXPECT_THAT(said, ::testing::AnyOf(HasSubstr("without a barrier"), HasSubstr("before it is written"))) << order;
  }
}

__global__ void write_after_read_kernel(int* x) {
  NOUGHT_SHARED(int, tile, 64);
  tile[threadIdx.x] = 1;
  __syncthreads();
  x[threadIdx.x] = tile[threadIdx.x ^ 32u];
  if (threadIdx.x >= 32) tile[threadIdx.x] = 2;
}

TEST_F(Emulation, a_write_before_others_have_read_is_named) {
  EXPECT_THAT(run(write_after_read_kernel, values<int>(64)), HasSubstr("writes, without a barrier after it was read,"));
}

__global__ void warp_kernel(int* x, bool waits) {
  NOUGHT_SHARED(int, tile, 64);
  tile[threadIdx.x] = static_cast<int>(threadIdx.x);
  if (waits) __syncwarp();
  x[threadIdx.x] = tile[threadIdx.x ^ 1u];
  __syncwarp();
  tile[threadIdx.x] = 0;
}

__global__ void shuffle_kernel(int* x, bool votes) {
  NOUGHT_SHARED(int, tile, 64);
  tile[threadIdx.x] = static_cast<int>(threadIdx.x);
  const int other = votes ? __any_sync(kAllLanes, true) : __shfl_xor_sync(kAllLanes, 1, 1);
  x[threadIdx.x] = tile[threadIdx.x ^ 1u] + other;
}

TEST_F(Emulation, shuffles_and_votes_order_no_memory) {
  for (const bool votes : {false, true})
    EXPECT_THAT(run(shuffle_kernel, values<int>(64), votes), HasSubstr("without a barrier"));
}

TEST_F(Emulation, lanes_of_a_warp_are_ordered_by_the_warp_alone) {
  EXPECT_EQ(run(warp_kernel, values<int>(64), true), "");
  EXPECT_NE(run(warp_kernel, values<int>(64), false), "");
}

__global__ void divergent_kernel(bool ends) {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else if (!ends) {
    __syncthreads();
  }
}

TEST_F(Emulation, a_barrier_that_some_threads_never_reach_is_named) {
  EXPECT_THAT(run(divergent_kernel, true), HasSubstr("of 64 threads hangs: thread 0 waits at the barrier in"));
}

TEST_F(Emulation, two_barriers_at_once_are_named) {
  EXPECT_THAT(run(divergent_kernel, false), HasSubstr("thread 32 waits at the barrier"));
}

__global__ void half_shuffle_kernel(int* x) {
  if (threadIdx.x % 32 < 16) x[threadIdx.x] = __shfl_xor_sync(kAllLanes, 1, 1);
}
__global__ void absent_source_kernel(int* x) {
  if (threadIdx.x % 32 < 16) x[threadIdx.x] = __shfl_sync(0xFFFFu, 1, 20);
}

TEST_F(Emulation, lanes_that_are_missing_in_a_shuffle_are_named) {
  EXPECT_THAT(run(half_shuffle_kernel, values<int>(64)), HasSubstr("waits of a warp in"));
}

TEST_F(Emulation, a_lane_outside_of_the_mask_is_named) {
  EXPECT_THAT(run(absent_source_kernel, values<int>(64)), HasSubstr("reads from lane 20, which is not in the mask"));
}

__global__ void beyond_shared_kernel(int i) {
  NOUGHT_SHARED(int, tile, 64);
  if (threadIdx.x == 0) tile[i] = 1;
}

TEST_F(Emulation, an_element_outside_of_a_shared_array_is_named) {
  EXPECT_EQ(run(beyond_shared_kernel, 63), "");
  EXPECT_THAT(run(beyond_shared_kernel, 64), HasSubstr("writes element 64 of 64"));
}

__global__ void dynamic_kernel(int* x) {
  NOUGHT_DYNAMIC_SHARED(int, tile);
  tile[threadIdx.x] = 7;
  x[threadIdx.x] = tile[threadIdx.x];
}

TEST_F(Emulation, dynamic_shared_memory_is_as_large_as_the_launch_says) {
  int* x = values<int>(64);
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(1);
  config.blockDim = dim3(64);
  config.stream = where_.stream;
  config.dynamicSmemBytes = 64 * sizeof(int);
  cudaLaunchKernelEx(&config, dynamic_kernel, x);
  EXPECT_EQ(synchronized(), "");
  EXPECT_EQ(x[63], 7);
  config.dynamicSmemBytes -= sizeof(int);
  cudaLaunchKernelEx(&config, dynamic_kernel, x);
  EXPECT_THAT(synchronized(), HasSubstr("writes element 63 of 63"));
}

__global__ void write_kernel(int* x, int at) { x[at + static_cast<int>(threadIdx.x)] = 1; }

TEST_F(Emulation, a_write_behind_an_allocation_is_found) {
  int* const x = values<int>(65);  // 260 bytes: 252 more up to the page
  EXPECT_EQ(run(write_kernel, x, 1), "");
  emulation::check_margins();
  EXPECT_EQ(run(write_kernel, x, 2), "");
  EXPECT_THAT(message_of<emulation::KernelError>([] { emulation::check_margins(); }),
              HasSubstr("something wrote 1 bytes behind an allocation of 260"));
  x[65] = static_cast<int>(0xA5A5A5A5u);  // it is found once
}

TEST_F(Emulation, what_lies_beyond_the_page_behind_an_allocation_cannot_be_touched) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH({ run(write_kernel, values<int>(64), 1); }, "");
  EXPECT_DEATH({ run(write_kernel, values<int>(1024), -1); }, "");
}

__global__ void vector_kernel(float* x) { store(x, load<4>(x)); }

TEST_F(Emulation, a_vector_at_an_odd_address_is_named) {
  float* const x = values<float>(64);
  EXPECT_EQ(run(vector_kernel, x), "");
  EXPECT_THAT(run(vector_kernel, x + 1), HasSubstr("an address is no multiple of 16"));
}

__global__ void float_atomic_kernel(float* sum) { atomicAdd(sum, 1.0f / static_cast<float>(3 * threadIdx.x + 1)); }
__global__ void integer_atomic_kernel(uint32_t* sum) { atomicAdd(sum, 3 * threadIdx.x + 1); }

TEST_F(Emulation, another_order_of_threads_shows_in_a_float_sum_by_atomics_and_not_in_one_of_integers) {
  std::vector<float> sums;
  std::vector<uint32_t> counts;
  for (const emulation::Order order : {0u, 1u, 5u}) {
    emulation::set_order(order);
    float* const sum = values<float>(1);
    uint32_t* const count = values<uint32_t>(1);
    *sum = 0, *count = 0;
    EXPECT_EQ(run(float_atomic_kernel, sum), "");
    EXPECT_EQ(run(integer_atomic_kernel, count), "");
    sums.push_back(*sum);
    counts.push_back(*count);
  }
  EXPECT_TRUE(sums[0] != sums[1] || sums[0] != sums[2]);
  EXPECT_THAT(counts, ::testing::Each(3 * 63 * 64 / 2 + 64));
}

__global__ void votes_kernel(uint32_t* x) {
  const unsigned lane = threadIdx.x % 32;
  const uint32_t votes = __ballot_sync(kAllLanes, lane % 3 == 0);
  const int any = __any_sync(kAllLanes, lane == 5), all = __all_sync(kAllLanes, lane < 31);
  const unsigned below = __shfl_down_sync(kAllLanes, lane, 4), first = __shfl_sync(kAllLanes, unsigned{threadIdx.x}, 0);
  if (threadIdx.x == 40) x[0] = votes, x[1] = any, x[2] = all, x[3] = below, x[4] = first;
}

TEST_F(Emulation, votes_and_shuffles_are_those_of_a_warp) {
  uint32_t* const x = values<uint32_t>(5);
  EXPECT_EQ(run(votes_kernel, x), "");
  uint32_t votes = 0;
  for (uint32_t lane = 0; lane < 32; lane += 3) votes |= 1u << lane;
  EXPECT_EQ(std::vector<uint32_t>(x, x + 5), (std::vector<uint32_t>{votes, 1, 0, 12, 32}));
}

__global__ void sum_kernel(double* sums) { sums[threadIdx.x] = block_sum(1.0 / (1.0 + threadIdx.x)); }

TEST_F(Emulation, a_sum_of_a_block_is_in_all_threads_and_the_same_in_any_order) {
  double* const sums = values<double>(2 * kThreads);
  for (const emulation::Order order : {0u, 1u}) {
    emulation::set_order(order);
    launch(where_, 1, dim3(kThreads), sum_kernel, sums + order * kThreads);
    EXPECT_EQ(synchronized(), "");
  }
  double expected = 0;
  for (int i = 0; i < kThreads; ++i) expected += 1.0 / (1.0 + i);
  EXPECT_NEAR(sums[0], expected, 1e-12);
  EXPECT_THAT(std::vector<double>(sums, sums + 2 * kThreads), ::testing::Each(sums[0]));
}

TEST_F(Emulation, a_launch_without_blocks_is_refused) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(0);
  config.blockDim = dim3(64);
  config.stream = where_.stream;
  EXPECT_EQ(cudaLaunchKernelEx(&config, divergent_kernel, false), cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

}  // namespace
}  // namespace nought::cuda::emulation_test
