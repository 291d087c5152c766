#include "cuda/cub_sort.h"
#include <cub/device/device_radix_sort.cuh>

#include "nought/cuda/backend/runtime.h"

namespace nought::test {

size_t cub_sort_room(int64_t count) {
  size_t bytes = 0;
  const uint64_t* from = nullptr;
  uint64_t* to = nullptr;
  cuda::check(cub::DeviceRadixSort::SortKeys(nullptr, bytes, from, to, count), "the room of a sort");
  return bytes;
}

void cub_sort(cudaStream_t stream, void* room, size_t room_bytes, const uint64_t* from, uint64_t* to, int64_t count) {
  cuda::check(cub::DeviceRadixSort::SortKeys(room, room_bytes, from, to, count, 0, 64, stream), "a sort");
}

}  // namespace nought::test
