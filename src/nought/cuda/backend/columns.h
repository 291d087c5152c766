// Sums over the rows of a matrix, column by column: the gradients of biases and of the weights of norms.
//
// Rows are cut into chunks of kChunkRows, whatever the grid is. A first kernel sums each chunk: eight threads take
// every eighth row of a column, and are added in their order. A second kernel adds the chunks in their order.
#pragma once

#include "nought/cuda/backend/kernel.h"
#include "nought/cuda/limits.h"

namespace nought::cuda {

inline constexpr int kStrip = 32, kLanes = kThreads / kStrip;

/// parts[chunk, j] = sum of f(row, j) over the rows of the chunk.
template <class Real, class F>
__global__ void __launch_bounds__(kThreads) chunk_sums_kernel(F f, int64_t rows, int64_t n, Real* parts) {
  NOUGHT_SHARED(Real, sums, kThreads);
  const int64_t strips = (n + kStrip - 1) / kStrip, chunks = (rows + kChunkRows - 1) / kChunkRows;
  for (int64_t tile = blockIdx.x; tile < strips * chunks; tile += gridDim.x) {
    const int64_t j = tile % strips * kStrip + threadIdx.x, chunk = tile / strips;
    const int64_t end = (chunk + 1) * kChunkRows < rows ? (chunk + 1) * kChunkRows : rows;
    Real sum = 0;
    if (j < n)
      for (int64_t row = chunk * kChunkRows + threadIdx.y; row < end; row += kLanes) sum += f(row, j);
    sums[threadIdx.y * kStrip + threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y == 0 && j < n) {
      for (int lane = 1; lane < kLanes; ++lane) sum += sums[lane * kStrip + threadIdx.x];
      parts[chunk * n + j] = sum;
    }
    __syncthreads();  // before the next tile's sums
  }
}

/// out[j] [+]= sum of parts[chunk, j].
template <class Real, class O>
__global__ void __launch_bounds__(kThreads)
    add_chunks_kernel(const Real* parts, int64_t chunks, int64_t n, bool accumulate, O* out) {
  for (int64_t j = thread_of_grid(); j < n; j += threads_of_grid()) {
    Real sum = 0;
    for (int64_t chunk = 0; chunk < chunks; ++chunk) sum += parts[chunk * n + j];
    out[j] = static_cast<O>(accumulate ? static_cast<Real>(out[j]) + sum : sum);
  }
}

/// out[j] [+]= sum of f(row, j) over all rows, in out's own float dtype.
template <class Real, class F>
void sum_columns(const Launch& where, int64_t rows, int64_t n, const F& f, Real* room, Array out, bool accumulate) {
  const int64_t strips = (n + kStrip - 1) / kStrip, chunks = (rows + kChunkRows - 1) / kChunkRows;
  launch(where, strips * chunks, dim3(kStrip, kLanes), chunk_sums_kernel<Real, F>, f, rows, n, room);
  visit_float(out.dtype, [&](auto tag) {
    using O = typename decltype(tag)::type;
    launch(where, blocks_of_threads_for(n), dim3(kThreads), add_chunks_kernel<Real, O>, room, chunks, n, accumulate,
           out.as<O>());
  });
}

}  // namespace nought::cuda
