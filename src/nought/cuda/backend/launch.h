// The kernels as host code calls them: plain arguments, one function for each operation of kernels/ops that device
// code exists for. They enqueue and return; arguments have been checked. Shapes and meanings are those of kernels/ops.
#pragma once

#include <cstdint>
#include <span>

#include <cuda_runtime.h>

#include "nought/kernels/ops/rounding.h"

namespace nought::cuda {

/// Where a kernel runs, and on how many blocks at most. Results do not depend on that number.
struct Launch {
  cudaStream_t stream = nullptr;
  int64_t max_blocks = 1024;
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

// elementwise.cu
void add(const Launch& where, Array a, Array b, Array out, int64_t n);
/// By factor, or by factor / (sqrt(*squares) + eps) if there are squares.
void scale(const Launch& where, Array x, Array squares, double factor, double eps, int64_t n);
void fill(const Launch& where, Array x, double value, int64_t n);
void cast(const Launch& where, Array x, Array y, int64_t n);
void add_to(const Launch& where, Array x, Array into, int64_t n);

// rounding.cu
void round_stochastic(const Launch& where, Array x, Array y, uint64_t key, int64_t first, int64_t n);
/// By `scale`, or by the scale of *largest if it is there.
void round_fp8(const Launch& where, Array x, Array y, Array largest, Fp8 format, double scale, int margin, int64_t n);

// sums.cu
/// How many inputs sum_tensors() takes.
inline constexpr int kMostInputs = 256;
void sum_tensors(const Launch& where, std::span<const Array> inputs, Array out, int64_t n);
void sum_elements(const Launch& where, Array x, Array out, int64_t n);
/// The elements of f64 that sum_squares() works in.
int64_t room_of_sum_squares(int64_t n);
void sum_squares(const Launch& where, Array x, Array out, double* room, int64_t n);
void abs_max(const Launch& where, Array x, Array out, bool accumulate, int64_t n);
/// The elements, in the type of sums of x, that column sums of [rows, n] work in.
int64_t room_of_columns(int64_t rows, int64_t n);
void sum_rows(const Launch& where, Array x, Array out, bool accumulate, void* room, int64_t rows, int64_t n);

// norms.cu
struct NormRows {
  int64_t rows = 0, n = 0;
};
struct RmsNormArrays {
  Array x, weight, squares, y, rstd;
  double eps = 0, weight_offset = 0;
  int64_t width = 0;
};
void rms_norm(const Launch& where, const RmsNormArrays& a, NormRows size);
struct RmsNormBackwardArrays {
  Array x, weight, rstd, dy, products, dx, d_weight;
  double weight_offset = 0;
  bool accumulate_x = false, accumulate_weight = false;
  int64_t width = 0;
};
/// `room` as in room_of_columns().
void rms_norm_backward(const Launch& where, const RmsNormBackwardArrays& a, void* room, NormRows size);
struct LayerNormArrays {
  Array x, weight, bias, y, mean, rstd;
  double eps = 0;
};
void layer_norm(const Launch& where, const LayerNormArrays& a, NormRows size);
struct LayerNormBackwardArrays {
  Array x, weight, mean, rstd, dy, dx, d_weight, d_bias;
  bool accumulate_x = false, accumulate_weight = false;
};
void layer_norm_backward(const Launch& where, const LayerNormBackwardArrays& a, void* room, NormRows size);

}  // namespace nought::cuda
