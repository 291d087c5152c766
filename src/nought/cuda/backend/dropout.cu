#include "nought/cuda/backend/kernel.h"
#include "nought/cuda/backend/operations.h"
#include "nought/kernels/narrowing.h"

namespace nought::cuda {
namespace {

/// A thread draws one Philox block, which serves the eight columns of a row that share it.
template <class T>
__global__ void __launch_bounds__(kThreads)
    dropout_kernel(const T* x, const int64_t* rows, T* y, uint64_t key, uint32_t threshold, accumulator_t<T> scale,
                   int64_t first_column, int64_t count, int64_t n, bool accumulate) {
  using Real = accumulator_t<T>;
  constexpr int64_t kShared = 8;
  const int64_t begin = first_column / kShared, blocks = (first_column + n + kShared - 1) / kShared - begin;
  for (int64_t each = thread_of_grid(); each < count * blocks; each += threads_of_grid()) {
    const int64_t row = each / blocks, block = begin + each % blocks;
    const Philox random = philox(key, static_cast<uint64_t>(block), static_cast<uint64_t>(rows[row]));
    for (int64_t column = block * kShared; column < (block + 1) * kShared; ++column) {
      const int64_t j = column - first_column;
      if (j < 0 || j >= n) continue;
      const int64_t i = row * n + j;
      const bool drops = random_bits16(random, static_cast<uint64_t>(column)) < threshold;
      const Real value = drops ? Real{0} : Real{x[i]} * scale;
      y[i] = static_cast<T>(accumulate ? Real{y[i]} + value : value);
    }
  }
}

}  // namespace

void start(const Dropout& op, Place& at) {
  const int64_t n = op.x.dim(-1), pieces = (op.x.numel() + 8 * kThreads) / (8 * kThreads);
  visit_float(op.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(at.launch, op.x.numel() == 0 ? 0 : pieces, dim3(kThreads), dropout_kernel<T>,
           static_cast<const T*>(op.x.data<T>()), static_cast<const int64_t*>(op.rows.data<int64_t>()), op.y.data<T>(),
           op.key, op.threshold(), static_cast<accumulator_t<T>>(1 / (1 - op.probability)), op.first_column,
           op.x.rows(), n, op.accumulate);
  });
}

}  // namespace nought::cuda
