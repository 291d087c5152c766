// The emulated instructions of tensor cores: fragments lie as the PTX manual says, and their product is the plain one.
#include <vector>

#include "cuda_emulation/control.h"
#include "support/kernel_test.h"
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "nought/cuda/backend/attention_mma.h"
#include "nought/cuda/backend/runtime.h"

namespace nought::cuda::tensor_cores_test {
namespace {

using ::testing::HasSubstr;

class TensorCores : public ::testing::Test {
 protected:
  TensorCores() { cudaStreamCreateWithFlags(&where_.stream, cudaStreamNonBlocking); }
  ~TensorCores() override {
    cudaStreamDestroy(where_.stream);
    cudaGetLastError();  // a mistake that a test has made
    emulation::set_order(0);
  }
  template <class... Expected, class... Given>
  std::string run(void (*kernel)(Expected...), Given... arguments) {
    launch(where_, 1, dim3(32), kernel, arguments...);
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

/// Every lane puts its elements where the manual says that they are: a[g or g + 8][2 t, 2 t + 1, and 8 more], b[2 t,
/// 2 t + 1, and 8 more][g], d[g or g + 8][2 t, 2 t + 1] of lane 4 g + t.
template <class T>
__global__ void fragments_kernel(const T* a, const T* b, float* d) {
  const int lane = static_cast<int>(threadIdx.x), g = lane / 4, t = lane % 4;
  const auto pair = [](T low, T high) { return uint32_t{low.bits} | uint32_t{high.bits} << 16; };
  const auto of_a = [&](int row, int k) { return pair(a[row * 16 + k], a[row * 16 + k + 1]); };
  const auto of_b = [&](int k) { return pair(b[k * 8 + g], b[(k + 1) * 8 + g]); };
  const uint32_t left[4] = {of_a(g, 2 * t), of_a(g + 8, 2 * t), of_a(g, 2 * t + 8), of_a(g + 8, 2 * t + 8)};
  const uint32_t right[2] = {of_b(2 * t), of_b(2 * t + 8)};
  float sums[4] = {1, 2, 3, 4};
  mma<T>(sums, left, right);
  for (int i = 0; i < 4; ++i) d[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = sums[i];
}

TEST_F(TensorCores, a_product_of_fragments_is_the_plain_product) {
  const auto hold = [&]<class T>(T) {
    T *const a = values<T>(16 * 16), *const b = values<T>(16 * 8);
    for (int i = 0; i < 16 * 16; ++i) a[i] = T(static_cast<float>(i % 13 - 6));
    for (int i = 0; i < 16 * 8; ++i) b[i] = T(static_cast<float>(i % 7 - 2));
    for (const emulation::Order order : {0u, 1u, 9u}) {
      emulation::set_order(order);
      float* const d = values<float>(16 * 8);
      ASSERT_EQ(run(fragments_kernel<T>, a, b, d), "");
      for (int row = 0; row < 16; ++row)
        for (int n = 0; n < 8; ++n) {
          float sum = static_cast<float>(1 + row / 8 * 2 + n % 2);  // small whole numbers: exact
          for (int k = 0; k < 16; ++k) sum += float{a[row * 16 + k]} * float{b[k * 8 + n]};
          ASSERT_EQ(d[row * 8 + n], sum) << row << ", " << n;
        }
    }
  };
  hold(bf16_t());
  hold(f16_t());
}

/// Matrix m has the rows [8 m, 8 m + 8) of shared memory.
template <bool kTransposed>
__global__ void matrices_kernel(uint32_t* out, bool waits) {
  NOUGHT_SHARED(Row8, tile, 32);
  Row8 row;
  for (int k = 0; k < 8; ++k) row.values[k] = static_cast<uint16_t>(threadIdx.x * 8 + k);
  tile[threadIdx.x] = row;
  if (waits) __syncwarp();
  uint32_t registers[4];
  load_matrices<kTransposed, Row8>(registers, tile, static_cast<int>(threadIdx.x));
  for (int m = 0; m < 4; ++m) out[threadIdx.x * 4 + m] = registers[m];
}

TEST_F(TensorCores, matrices_are_loaded_as_they_lie_or_transposed) {
  uint32_t* const out = values<uint32_t>(32 * 4);
  for (const bool transposed : {false, true}) {
    ASSERT_EQ(run(transposed ? matrices_kernel<true> : matrices_kernel<false>, out, true), "");
    for (uint32_t lane = 0; lane < 32; ++lane)
      for (uint32_t m = 0; m < 4; ++m) {
        const auto element = [&](uint32_t row, uint32_t column) { return (8 * m + row) * 8 + column; };
        const uint32_t outer = lane / 4, inner = lane % 4 * 2;
        const uint32_t low = transposed ? element(inner, outer) : element(outer, inner);
        const uint32_t high = transposed ? element(inner + 1, outer) : element(outer, inner + 1);
        ASSERT_EQ(out[lane * 4 + m], low | high << 16) << lane << ", " << m;
      }
  }
}

TEST_F(TensorCores, matrices_that_other_lanes_write_need_a_barrier) {
  EXPECT_THAT(run(matrices_kernel<false>, values<uint32_t>(32 * 4), false),
              HasSubstr("reads, without a barrier after it was written, element"));
}

__global__ void half_product_kernel() {
  float sums[4] = {};
  if (threadIdx.x < 16) mma<bf16_t>(sums, {0, 0, 0, 0}, {0, 0});
}

TEST_F(TensorCores, a_product_that_half_of_a_warp_calls_is_named) {
  EXPECT_THAT(run(half_product_kernel), HasSubstr("waits of a warp in"));
}

}  // namespace
}  // namespace nought::cuda::tensor_cores_test
