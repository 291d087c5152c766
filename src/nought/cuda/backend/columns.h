// Sums over the rows of a matrix, column by column: the gradients of biases and of the weights of norms.
//
// Rows are cut into chunks of kChunkRows, whatever the grid is. A first kernel sums each chunk: eight warps take every
// eighth row, and are added in their order. A second kernel adds the chunks: eight threads take every eighth one, and
// are added in their order.
#pragma once

#include "nought/cuda/backend/kernel.h"
#include "nought/cuda/limits.h"

namespace nought::cuda {

inline constexpr int kStrip = 32, kLanes = kThreads / kStrip;

/// parts[s, chunk, j] = sum over the rows of the chunk of what f adds to sums[s] for column j: F has Real, kSums,
/// kWidth, and add<kCount>(row, j, sums) for kCount columns from j on, kWidth or one.
template <class F>
__global__ void __launch_bounds__(kThreads) chunk_sums_kernel(F f, int64_t rows, int64_t n, typename F::Real* parts) {
  using Real = typename F::Real;
  constexpr int kWidth = F::kWidth, kColumns = kStrip * kWidth;
  NOUGHT_SHARED(Real, shared, kLanes * kColumns);
  const int lane = static_cast<int>(threadIdx.x), row_lane = static_cast<int>(threadIdx.y);
  const int64_t strips = (n + kColumns - 1) / kColumns, chunks = (rows + kChunkRows - 1) / kChunkRows;
  for (int64_t tile = blockIdx.x; tile < strips * chunks; tile += gridDim.x) {
    const int64_t first = tile % strips * kColumns, j = first + lane * kWidth, chunk = tile / strips;
    const int64_t end = (chunk + 1) * kChunkRows < rows ? (chunk + 1) * kChunkRows : rows;
    Real sums[F::kSums][kWidth] = {};
    const int64_t begin = chunk * kChunkRows + row_lane;
    if (j + kWidth <= n) {
      NOUGHT_UNROLL_BY(4)
      for (int64_t row = begin; row < end; row += kLanes) f.template add<kWidth>(row, j, sums);
    } else {
      for (int64_t row = begin; row < end; row += kLanes)
        for (int k = 0; k < kWidth && j + k < n; ++k) {
          Real one[F::kSums][1] = {};
          f.template add<1>(row, j + k, one);
          for (int s = 0; s < F::kSums; ++s) sums[s][k] += one[s][0];
        }
    }
    for (int s = 0; s < F::kSums; ++s) {
      __syncthreads();  // the sums before have been read
      for (int k = 0; k < kWidth; ++k) shared[row_lane * kColumns + k * kStrip + lane] = sums[s][k];
      __syncthreads();
      for (int column = row_lane * kStrip + lane; column < kColumns; column += kThreads) {
        const int at = column % kWidth * kStrip + column / kWidth;
        if (first + column >= n) continue;
        Real sum = shared[at];
        for (int other = 1; other < kLanes; ++other) sum += shared[other * kColumns + at];
        parts[(s * chunks + chunk) * n + first + column] = sum;
      }
    }
  }
}

/// out[j] [+]= sum of parts[chunk, j].
template <class Real, class O>
__global__ void __launch_bounds__(kThreads)
    add_chunks_kernel(const Real* parts, int64_t chunks, int64_t n, bool accumulate, O* out) {
  NOUGHT_SHARED(Real, shared, kThreads);
  const int lane = static_cast<int>(threadIdx.x), chunk_lane = static_cast<int>(threadIdx.y);
  for (int64_t first = int64_t{blockIdx.x} * kStrip; first < n; first += int64_t{gridDim.x} * kStrip) {
    const int64_t j = first + lane;
    Real sum = 0;
    if (j < n) {
      NOUGHT_UNROLL_BY(4)
      for (int64_t chunk = chunk_lane; chunk < chunks; chunk += kLanes) sum += parts[chunk * n + j];
    }
    __syncthreads();  // the sums before have been read
    shared[chunk_lane * kStrip + lane] = sum;
    __syncthreads();
    if (chunk_lane > 0 || j >= n) continue;
    for (int other = 1; other < kLanes; ++other) sum += shared[other * kStrip + lane];
    out[j] = static_cast<O>(accumulate ? static_cast<Real>(out[j]) + sum : sum);
  }
}

/// The sums of f, kSums times room_of_columns() in `room`, for add_columns().
template <class F>
void sum_chunks(const Launch& where, int64_t rows, int64_t n, const F& f, typename F::Real* room) {
  const int64_t strips = (n + kStrip * F::kWidth - 1) / (kStrip * F::kWidth);
  launch(where, strips * ((rows + kChunkRows - 1) / kChunkRows), dim3(kStrip, kLanes), chunk_sums_kernel<F>, f, rows, n,
         room);
}
/// out[j] [+]= what is in the room of one sum, in out's own float dtype.
template <class Real>
void add_columns(const Launch& where, int64_t rows, int64_t n, const Real* room, Array out, bool accumulate) {
  visit_float(out.dtype, [&](auto tag) {
    using O = typename decltype(tag)::type;
    launch(where, (n + kStrip - 1) / kStrip, dim3(kStrip, kLanes), add_chunks_kernel<Real, O>, room,
           (rows + kChunkRows - 1) / kChunkRows, n, accumulate, out.as<O>());
  });
}

/// out[j] [+]= the only sum of f over all rows.
template <class F>
void sum_columns(const Launch& where, int64_t rows, int64_t n, const F& f, typename F::Real* room, Array out,
                 bool accumulate) {
  sum_chunks(where, rows, n, f, room);
  add_columns<typename F::Real>(where, rows, n, room, out, accumulate);
}

/// The elements of x [rows, n].
template <class T>
struct ColumnsOf {
  using Real = accumulator_t<T>;
  static constexpr int kSums = 1, kWidth = kPackOf<T>;
  const T* x;
  int64_t n;
  bool aligned;  // every row
  template <int kCount>
  __device__ void add(int64_t row, int64_t j, Real (&sums)[1][kCount]) const {
    const Values<T, kCount> values(x + row * n + j, aligned);
    for (int k = 0; k < kCount; ++k) sums[0][k] += values[k];
  }
};

}  // namespace nought::cuda
