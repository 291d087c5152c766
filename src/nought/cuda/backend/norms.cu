#include "nought/cuda/backend/columns.h"
#include "nought/cuda/backend/operations.h"

namespace nought::cuda {
namespace {

struct NormRows {
  int64_t rows = 0, n = 0;
};
NormRows rows_of(const Tensor& x) { return {x.rows(), x.dim(-1)}; }

/// Addresses of what a norm has, by the names of its operation; null for what is not there.
template <class T>
struct NormArrays {
  using Real = accumulator_t<T>;
  const T *x = nullptr, *weight = nullptr, *bias = nullptr, *dy = nullptr;
  T *y = nullptr, *dx = nullptr;
  const Real *squares = nullptr, *products = nullptr;
  Real *mean = nullptr, *rstd = nullptr;
};

/// What a norm is asked for beside its operands.
struct NormOptions {
  double eps = 0, weight_offset = 0;
  int64_t width = 0;
  bool accumulate_x = false;
};

template <class T>
T* address_of(const Tensor& tensor) {
  return array_of(tensor).as<T>();
}

/// Writes elements [begin, begin + kCount) of a row.
template <class T, int kCount>
__device__ void write(T* row, int64_t begin, bool aligned, const accumulator_t<T>* values) {
  if constexpr (kCount > 1) {
    Pack<T, kCount> pack;
    for (int k = 0; k < kCount; ++k) pack.values[k] = static_cast<T>(values[k]);
    store(row + begin, pack, aligned);
  } else {
    row[begin] = static_cast<T>(values[0]);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    rms_norm_kernel(NormArrays<T> a, NormOptions options, NormRows size, bool aligned) {
  using Real = accumulator_t<T>;
  constexpr int kWidth = kPackOf<T>;
  const int64_t n = size.n;
  const auto* const squares = a.squares;
  for (int64_t row = blockIdx.x; row < size.rows; row += gridDim.x) {
    const T* const x = a.x + row * n;
    const Real sum = squares != nullptr
                         ? squares[row]
                         : sum_over<Real>(x, n, aligned, [](int64_t, Real value) { return value * value; });
    const Real rstd =
        1 / sqrt(sum / static_cast<Real>(squares != nullptr ? options.width : n) + static_cast<Real>(options.eps));
    if (threadIdx.x == 0) a.rstd[row] = rstd;
    for_each_pack<kWidth>(n, [&](int64_t begin, auto count) {
      constexpr int kCount = decltype(count)::value;
      const Values<T, kCount> values(x + begin, aligned), weight(a.weight + begin, aligned);
      Real y[kCount];
      for (int k = 0; k < kCount; ++k) y[k] = values[k] * rstd * (weight[k] + static_cast<Real>(options.weight_offset));
      write<T, kCount>(a.y + row * n, begin, aligned, y);
    });
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    rms_norm_backward_kernel(NormArrays<T> a, NormOptions options, NormRows size, bool aligned) {
  using Real = accumulator_t<T>;
  constexpr int kWidth = kPackOf<T>;
  const int64_t n = size.n;
  const T* const weights = a.weight;
  const auto* const products = a.products;
  const Real offset = static_cast<Real>(options.weight_offset);
  for (int64_t row = blockIdx.x; row < size.rows; row += gridDim.x) {
    const T *const x = a.x + row * n, *const dy = a.dy + row * n;
    T* const dx = a.dx + row * n;
    const Real rstd = a.rstd[row];
    Real projection;  // mean of the normalised x times its gradient: what moving along x itself does not change
    if (products != nullptr) {
      projection = products[row] * rstd / static_cast<Real>(options.width);
    } else {
      const auto part = [&](int64_t j, Real value) { return Real{dy[j]} * (Real{weights[j]} + offset) * value * rstd; };
      projection = sum_over<Real>(x, n, aligned, part) / static_cast<Real>(n);
    }
    for_each_pack<kWidth>(n, [&](int64_t begin, auto count) {
      constexpr int kCount = decltype(count)::value;
      const Values<T, kCount> values(x + begin, aligned), upstream(dy + begin, aligned),
          weight(weights + begin, aligned);
      Real gradient[kCount];
      for (int k = 0; k < kCount; ++k) {
        const Real normal = values[k] * rstd;
        gradient[k] = (upstream[k] * (weight[k] + offset) - normal * projection) * rstd;
        if (options.accumulate_x) gradient[k] = Real{dx[begin + k]} + gradient[k];
      }
      write<T, kCount>(dx, begin, aligned, gradient);
    });
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    layer_norm_kernel(NormArrays<T> a, NormOptions options, NormRows size, bool aligned) {
  using Real = accumulator_t<T>;
  constexpr int kWidth = kPackOf<T>;
  const int64_t n = size.n;
  for (int64_t row = blockIdx.x; row < size.rows; row += gridDim.x) {
    const T* const x = a.x + row * n;
    const Real mean = sum_over<Real>(x, n, aligned, [](int64_t, Real value) { return value; }) / static_cast<Real>(n);
    const auto square = [mean](int64_t, Real value) { return (value - mean) * (value - mean); };
    const Real variance = sum_over<Real>(x, n, aligned, square) / static_cast<Real>(n);
    const Real rstd = 1 / sqrt(variance + static_cast<Real>(options.eps));
    if (threadIdx.x == 0) {
      a.mean[row] = mean;
      a.rstd[row] = rstd;
    }
    for_each_pack<kWidth>(n, [&](int64_t begin, auto count) {
      constexpr int kCount = decltype(count)::value;
      const Values<T, kCount> values(x + begin, aligned), weight(a.weight + begin, aligned),
          bias(a.bias + begin, aligned);
      Real y[kCount];
      for (int k = 0; k < kCount; ++k) y[k] = (values[k] - mean) * rstd * weight[k] + bias[k];
      write<T, kCount>(a.y + row * n, begin, aligned, y);
    });
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    layer_norm_backward_kernel(NormArrays<T> a, NormOptions options, NormRows size, bool aligned) {
  using Real = accumulator_t<T>;
  constexpr int kWidth = kPackOf<T>;
  const int64_t n = size.n;
  const T* const weights = a.weight;
  for (int64_t row = blockIdx.x; row < size.rows; row += gridDim.x) {
    const T *const x = a.x + row * n, *const dy = a.dy + row * n;
    T* const dx = a.dx + row * n;
    const Real mean = a.mean[row], rstd = a.rstd[row];
    // What moving along (1, ..., 1) and along x does not change.
    const auto scaled = [&](int64_t j) { return Real{dy[j]} * Real{weights[j]}; };
    const Real shift = sum_over<Real>(x, n, aligned, [&](int64_t j, Real) { return scaled(j); }) / static_cast<Real>(n);
    const auto part = [&](int64_t j, Real value) { return scaled(j) * (value - mean) * rstd; };
    const Real projection = sum_over<Real>(x, n, aligned, part) / static_cast<Real>(n);
    for_each_pack<kWidth>(n, [&](int64_t begin, auto count) {
      constexpr int kCount = decltype(count)::value;
      const Values<T, kCount> values(x + begin, aligned), upstream(dy + begin, aligned),
          weight(weights + begin, aligned);
      Real gradient[kCount];
      for (int k = 0; k < kCount; ++k) {
        const Real normal = (values[k] - mean) * rstd;
        gradient[k] = (upstream[k] * weight[k] - shift - normal * projection) * rstd;
        if (options.accumulate_x) gradient[k] = Real{dx[begin + k]} + gradient[k];
      }
      write<T, kCount>(dx, begin, aligned, gradient);
    });
  }
}

/// What a row adds to the gradient of the weight: the upstream gradient times the normalised x. mean may be null.
template <class T>
struct WeightGradient {
  using Real = accumulator_t<T>;
  const T *x, *dy;
  const Real *mean, *rstd;
  int64_t n;
  __device__ Real operator()(int64_t row, int64_t j) const {
    const Real value = Real{x[row * n + j]}, shifted = mean != nullptr ? value - mean[row] : value;
    return Real{dy[row * n + j]} * (shifted * rstd[row]);
  }
};

template <class T>
struct BiasGradient {
  const T* dy;
  int64_t n;
  __device__ accumulator_t<T> operator()(int64_t row, int64_t j) const { return accumulator_t<T>{dy[row * n + j]}; }
};

/// True if packs can be used in every row of all of them.
template <class T, class... Addresses>
bool rows_are_aligned(int64_t n, const Addresses*... addresses) {
  return n % kPackOf<T> == 0 && are_aligned(addresses...);
}

}  // namespace

void start(const RmsNorm& op, Place& at) {
  visit_float(op.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Real = accumulator_t<T>;
    const NormRows size = rows_of(op.x);
    const NormArrays<T> a{.x = address_of<T>(op.x),
                          .weight = address_of<T>(op.weight),
                          .y = address_of<T>(op.y),
                          .squares = address_of<Real>(op.squares),
                          .rstd = address_of<Real>(op.rstd)};
    const NormOptions options{.eps = op.eps, .weight_offset = op.weight_offset, .width = op.width};
    launch(at.launch, size.rows, dim3(kThreads), rms_norm_kernel<T>, a, options, size,
           rows_are_aligned<T>(size.n, a.x, a.weight, a.y));
  });
}

void start(const RmsNormBackward& op, Place& at) {
  visit_float(op.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Real = accumulator_t<T>;
    const NormRows size = rows_of(op.x);
    const NormArrays<T> a{.x = address_of<T>(op.x),
                          .weight = address_of<T>(op.weight),
                          .dy = address_of<T>(op.dy),
                          .dx = address_of<T>(op.dx),
                          .products = address_of<Real>(op.products),
                          .rstd = address_of<Real>(op.rstd)};
    const NormOptions options{.weight_offset = op.weight_offset, .width = op.width, .accumulate_x = op.accumulate_x};
    // First: dx may be dy.
    sum_columns(at.launch, size.rows, size.n, WeightGradient<T>{a.x, a.dy, nullptr, a.rstd, size.n},
                static_cast<Real*>(at.room()), array_of(op.d_weight), op.accumulate_weight);
    launch(at.launch, size.rows, dim3(kThreads), rms_norm_backward_kernel<T>, a, options, size,
           rows_are_aligned<T>(size.n, a.x, a.weight, a.dy, a.dx));
  });
}

void start(const LayerNorm& op, Place& at) {
  visit_float(op.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Real = accumulator_t<T>;
    const NormRows size = rows_of(op.x);
    const NormArrays<T> a{.x = address_of<T>(op.x),
                          .weight = address_of<T>(op.weight),
                          .bias = address_of<T>(op.bias),
                          .y = address_of<T>(op.y),
                          .mean = address_of<Real>(op.mean),
                          .rstd = address_of<Real>(op.rstd)};
    launch(at.launch, size.rows, dim3(kThreads), layer_norm_kernel<T>, a, NormOptions{.eps = op.eps}, size,
           rows_are_aligned<T>(size.n, a.x, a.weight, a.bias, a.y));
  });
}

void start(const LayerNormBackward& op, Place& at) {
  visit_float(op.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Real = accumulator_t<T>;
    const NormRows size = rows_of(op.x);
    const NormArrays<T> a{.x = address_of<T>(op.x),
                          .weight = address_of<T>(op.weight),
                          .dy = address_of<T>(op.dy),
                          .dx = address_of<T>(op.dx),
                          .mean = address_of<Real>(op.mean),
                          .rstd = address_of<Real>(op.rstd)};
    // First: dx may be dy. The second sum finds the room free, in the order of the stream.
    auto* const parts = static_cast<Real*>(at.room());
    sum_columns(at.launch, size.rows, size.n, WeightGradient<T>{a.x, a.dy, a.mean, a.rstd, size.n}, parts,
                array_of(op.d_weight), op.accumulate_weight);
    sum_columns(at.launch, size.rows, size.n, BiasGradient<T>{a.dy, size.n}, parts, array_of(op.d_bias),
                op.accumulate_weight);
    launch(at.launch, size.rows, dim3(kThreads), layer_norm_backward_kernel<T>, a,
           NormOptions{.accumulate_x = op.accumulate_x}, size, rows_are_aligned<T>(size.n, a.x, a.weight, a.dy, a.dx));
  });
}

}  // namespace nought::cuda
