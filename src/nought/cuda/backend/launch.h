// Where kernels run, and arrays on the device, as host code names them.
#pragma once

#include <cstdint>
#include <span>

#include <cuda_runtime.h>

#include "nought/tensor/tensor.h"

namespace nought::cuda {

/// Where a kernel runs, and on how many blocks at most. Results do not depend on these numbers.
struct Launch {
  cudaStream_t stream = nullptr;
  int64_t max_blocks = 1024;             // where blocks go over elements: as many as keep a device busy
  int64_t max_tiles = int64_t{1} << 30;  // where each has work of its own size: the device gives it out
  /// This place for blocks with work of their own size.
  Launch by_tiles() const { return {stream, max_tiles, max_tiles}; }
};

/// An array of a dtype, on the device. A null address is a tensor that is not there.
struct Array {
  void* at = nullptr;
  DType dtype = DType::f32;
  template <class T>
  constexpr T* as() const {
    return static_cast<T*>(at);
  }
  explicit operator bool() const { return at != nullptr; }
};
inline Array array_of(const Tensor& tensor) { return {tensor.raw(), tensor.dtype()}; }

// Kernels that more than their own operation needs.
void fill(const Launch& where, Array x, double value, int64_t n);
void cast(const Launch& where, Array x, Array y, int64_t n);
void sum_elements(const Launch& where, Array x, double* out, int64_t n);
/// How many inputs sum_tensors() takes.
inline constexpr int kMostInputs = 256;
void sum_tensors(const Launch& where, std::span<const Array> inputs, Array out, int64_t n);

}  // namespace nought::cuda
