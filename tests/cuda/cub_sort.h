// CUB's radix sort, to be timed beside the sort of the backend.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

namespace nought::test {

/// Bytes that cub_sort() needs beside its keys.
size_t cub_sort_room(int64_t count);
/// Sorts `count` keys, from one array into another, in ascending order; DeviceError where CUDA refuses.
void cub_sort(cudaStream_t stream, void* room, size_t room_bytes, const uint64_t* from, uint64_t* to, int64_t count);

}  // namespace nought::test
