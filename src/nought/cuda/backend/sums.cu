#include "nought/cuda/backend/columns.h"
#include "nought/cuda/backend/operations.h"

namespace nought::cuda {
namespace {

/// The inputs travel with the launch.
struct Inputs {
  const void* at[kMostInputs];
  int count;
};

template <class T, class Real>
__global__ void __launch_bounds__(kThreads) sum_tensors_kernel(Inputs inputs, T* out, int64_t n) {
  for (int64_t i = thread_of_grid(); i < n; i += threads_of_grid()) {
    Real sum{static_cast<const T*>(inputs.at[0])[i]};
    for (int k = 1; k < inputs.count; ++k) sum = static_cast<Real>(sum + Real{static_cast<const T*>(inputs.at[k])[i]});
    out[i] = static_cast<T>(sum);
  }
}

/// One block: its threads fetch a tile, and the first adds it in order.
template <class T>
__global__ void __launch_bounds__(kThreads) sum_elements_kernel(const T* x, double* out, int64_t n) {
  NOUGHT_SHARED(double, tile, kThreads);
  double sum = 0;
  for (int64_t begin = 0; begin < n; begin += kThreads) {
    const int64_t count = n - begin < kThreads ? n - begin : kThreads;
    if (threadIdx.x < count) tile[threadIdx.x] = static_cast<double>(accumulator_t<T>{x[begin + threadIdx.x]});
    __syncthreads();
    if (threadIdx.x == 0) {
      NOUGHT_UNROLL_BY(16)
      for (int i = 0; i < static_cast<int>(count); ++i) sum += tile[i];
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) *out = sum;
}

template <class T>
__global__ void __launch_bounds__(kThreads) squares_kernel(const T* x, double* sums, bool aligned, int64_t n) {
  const int64_t blocks = (n + kSquaresBlock - 1) / kSquaresBlock;
  for (int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    const T* from = x + block * kSquaresBlock;
    const int64_t count = n - block * kSquaresBlock < kSquaresBlock ? n - block * kSquaresBlock : kSquaresBlock;
    const double sum = sum_over<double>(from, count, aligned, [](int64_t, accumulator_t<T> value) {
      return static_cast<double>(value) * static_cast<double>(value);
    });
    if (threadIdx.x == 0) sums[block] = sum;
  }
}

/// The bits of magnitudes are ordered as these are, and those of NaN are above all.
__device__ uint32_t magnitude_bits(float x) { return std::bit_cast<uint32_t>(x) & 0x7FFFFFFFu; }

__global__ void begin_abs_max_kernel(float* out, bool accumulate) {
  *out = accumulate ? std::bit_cast<float>(magnitude_bits(*out)) : 0.0f;
}

template <class T>
__global__ void __launch_bounds__(kThreads) abs_max_kernel(const T* x, uint32_t* out, int64_t n) {
  uint32_t largest = 0;
  for (int64_t i = thread_of_grid(); i < n; i += threads_of_grid()) {
    const uint32_t bits = magnitude_bits(static_cast<float>(x[i]));
    largest = bits > largest ? bits : largest;
  }
  for (int lanes = kWarpSize / 2; lanes > 0; lanes /= 2) {
    const uint32_t other = __shfl_xor_sync(kAllLanes, largest, lanes);
    largest = other > largest ? other : largest;
  }
  if (threadIdx.x % kWarpSize == 0) atomicMax(out, largest);
}

}  // namespace

void sum_tensors(const Launch& where, std::span<const Array> inputs, Array out, int64_t n) {
  Inputs taken{};
  for (const Array& input : inputs) taken.at[taken.count++] = input.at;
  visit_dtype(out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Real = std::conditional_t<std::is_integral_v<T>, std::type_identity<T>, std::type_identity<accumulator_t<T>>>;
    launch(where, blocks_of_threads_for(n), dim3(kThreads), sum_tensors_kernel<T, typename Real::type>, taken,
           out.as<T>(), n);
  });
}
void start(const SumTensors& op, Place& at) {
  std::vector<Array> inputs;
  for (const Tensor& input : op.inputs) inputs.push_back(array_of(input));
  sum_tensors(at.launch, inputs, array_of(op.out), op.out.numel());
}

void sum_elements(const Launch& where, Array x, double* out, int64_t n) {
  visit_float(x.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(where, 1, dim3(kThreads), sum_elements_kernel<T>, x.as<const T>(), out, n);
  });
}
void start(const SumElements& op, Place& at) {
  sum_elements(at.launch, array_of(op.x), op.out.data<double>(), op.x.numel());
}

void start(const SumSquares& op, Place& at) {
  const int64_t n = op.x.numel(), blocks = ceil_div(n, kSquaresBlock);
  auto* const parts = static_cast<double*>(at.room());
  visit_float(op.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(at.launch, blocks, dim3(kThreads), squares_kernel<T>, op.x.data<T>(), parts, are_aligned(op.x.raw()), n);
  });
  sum_elements(at.launch, {parts, DType::f64}, op.out.data<double>(), blocks);
}

void start(const AbsMax& op, Place& at) {
  launch(at.launch, 1, dim3(1), begin_abs_max_kernel, op.out.data<float>(), op.accumulate);
  visit_float(op.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    constexpr int64_t kEach = 8;
    launch(at.launch, ceil_div(op.x.numel(), kThreads * kEach), dim3(kThreads), abs_max_kernel<T>, op.x.data<T>(),
           reinterpret_cast<uint32_t*>(op.out.data<float>()), op.x.numel());
  });
}

void start(const SumRows& op, Place& at) {
  const int64_t rows = op.x.rows(), n = op.x.dim(-1);
  visit_float(op.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* const x = op.x.data<T>();
    const ColumnsOf<T> columns{x, n, n % kPackOf<T> == 0 && are_aligned(x)};
    sum_columns(at.launch, rows, n, columns, static_cast<accumulator_t<T>*>(at.room()), array_of(op.out),
                op.accumulate);
  });
}

}  // namespace nought::cuda
