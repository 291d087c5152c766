// Gram-Schmidt on one block of threads: a row waits for those before it, and rows are few. What the products beside it
// take is far more.
//
// Sums are f64, and their order is the block's: it depends on the length of a row alone. The reference adds from the
// first to the last, so rows agree to the rounding of f64, which rounding to fp32 hides but for some last bits.
#include <numbers>

#include "nought/cuda/backend/kernel.h"
#include "nought/cuda/backend/operations.h"
#include "nought/tensor/random.h"

namespace nought::cuda {
namespace {

/// f(k) for the elements of a row that the thread has: always the same, so that nobody else waits for them.
template <class F>
__device__ void for_this_thread(int64_t n, const F& f) {
  for (int64_t k = threadIdx.x; k < n; k += kThreads) f(k);
}

/// The sum of f(k) over a row, in every thread of the block.
template <class F>
__device__ double sum_of_row(int64_t n, const F& f) {
  double sum = 0;
  for_this_thread(n, [&](int64_t k) { sum += f(k); });
  return block_sum(sum);
}

/// Takes out of `row` what lies along the `count` rows of x, which are orthonormal or zero. Returns the length of the
/// rest; 0 if it is what rounding left.
__device__ double take_out(double* row, const float* x, int64_t count, int64_t n) {
  constexpr double kNothing = 1e-6;  // It is a share of the row's length, as on the reference.
  const auto length = [&] { return sqrt(sum_of_row(n, [&](int64_t k) { return row[k] * row[k]; })); };
  const double before = length();
  for (int pass = 0; pass < 2; ++pass)
    for (int64_t i = 0; i < count; ++i) {
      const float* const other = x + i * n;
      const double along = sum_of_row(n, [&](int64_t k) { return row[k] * static_cast<double>(other[k]); });
      for_this_thread(n, [&](int64_t k) { row[k] -= along * static_cast<double>(other[k]); });
    }
  const double left = length();
  return left > kNothing * before ? left : 0;
}

/// normal_at() of tensor/random.h, but for the last bits of a logarithm and a cosine.
__device__ double normal_value(uint64_t key, uint64_t index) {
  const Philox words = philox(key, index / 2);
  const auto unit = [](uint32_t bits) { return (static_cast<double>(bits) + 1.0) * 0x1p-32; };
  const size_t lane = 2 * (index % 2);
  return sqrt(-2.0 * log(unit(words[lane]))) * cos(2.0 * std::numbers::pi * unit(words[lane + 1]));
}

__global__ void __launch_bounds__(kThreads)
    orthonormalize_kernel(float* x, double* row, int64_t rows, int64_t n, uint64_t key, bool draws) {
  for (int64_t i = 0; i < rows; ++i) {
    float* const at = x + i * n;
    for_this_thread(n, [&](int64_t k) { row[k] = static_cast<double>(at[k]); });
    double length = take_out(row, x, i, n);
    if (length == 0 && draws && i < n) {
      for_this_thread(n, [&](int64_t k) { row[k] = normal_value(key, static_cast<uint64_t>(i * n + k)); });
      length = take_out(row, x, i, n);
    }
    for_this_thread(n, [&](int64_t k) { at[k] = length == 0 ? 0.0f : static_cast<float>(row[k] / length); });
  }
}

}  // namespace

void start(const Orthonormalize& op, Place& at) {
  const int64_t rows = op.x.dim(0), n = op.x.dim(1);
  auto* const row = static_cast<double*>(at.room());
  launch(at.launch, op.x.numel() > 0 ? 1 : 0, dim3(kThreads), orthonormalize_kernel, op.x.data<float>(), row, rows, n,
         op.key, op.draws);
}

}  // namespace nought::cuda
