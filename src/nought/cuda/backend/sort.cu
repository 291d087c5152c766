#include "nought/cuda/backend/kernel.h"
#include "nought/cuda/backend/sort.h"

namespace nought::cuda {
namespace {

constexpr int64_t kTile = 2048;  // keys that a block sorts in shared memory

/// The lower one of pair `pair` at this distance, a power of two.
__device__ int64_t lower_of(int64_t pair, int64_t distance) {
  return (pair & ~(distance - 1)) * 2 + (pair & (distance - 1));
}

/// The last steps of the stages [from, to] of the network, those within a tile: all of stage 2, 4, ... up to a tile; of
/// a larger stage the steps of distances below a tile.
__global__ void __launch_bounds__(kThreads) sort_tiles_kernel(uint64_t* keys, int64_t count, int64_t from, int64_t to) {
  NOUGHT_SHARED(uint64_t, tile, kTile);
  const int64_t size = count < kTile ? count : kTile;
  for (int64_t begin = blockIdx.x * size; begin < count; begin += gridDim.x * size) {
    for (int64_t i = threadIdx.x; i < size; i += kThreads) tile[i] = keys[begin + i];
    __syncthreads();
    for (int64_t stage = from; stage <= to; stage *= 2)
      for (int64_t distance = (stage < size ? stage : size) / 2; distance > 0; distance /= 2) {
        for (int64_t pair = threadIdx.x; pair < size / 2; pair += kThreads) {
          const int64_t i = lower_of(pair, distance);
          const uint64_t a = tile[i], b = tile[i + distance];
          if ((a > b) == (((begin + i) & stage) == 0)) {
            tile[i] = b;
            tile[i + distance] = a;
          }
        }
        __syncthreads();
      }
    // Without a barrier behind it: each thread reads the next tile to where it wrote this one back from.
    for (int64_t i = threadIdx.x; i < size; i += kThreads) keys[begin + i] = tile[i];
  }
}

__global__ void __launch_bounds__(kThreads)
    sort_step_kernel(uint64_t* keys, int64_t count, int64_t stage, int64_t distance) {
  for (int64_t pair = thread_of_grid(); pair < count / 2; pair += threads_of_grid()) {
    const int64_t i = lower_of(pair, distance);
    const uint64_t a = keys[i], b = keys[i + distance];
    if ((a > b) == ((i & stage) == 0)) {
      keys[i] = b;
      keys[i + distance] = a;
    }
  }
}

}  // namespace

void sort_keys(const Launch& where, uint64_t* keys, int64_t count) {
  const int64_t size = count < kTile ? count : kTile, tiles = count / size;
  launch(where, tiles, dim3(kThreads), sort_tiles_kernel, keys, count, int64_t{2}, size);
  for (int64_t stage = 2 * size; stage <= count; stage *= 2) {
    for (int64_t distance = stage / 2; distance >= size; distance /= 2)
      launch(where, blocks_of_threads_for(count / 2), dim3(kThreads), sort_step_kernel, keys, count, stage, distance);
    launch(where, tiles, dim3(kThreads), sort_tiles_kernel, keys, count, stage, stage);
  }
}

}  // namespace nought::cuda
