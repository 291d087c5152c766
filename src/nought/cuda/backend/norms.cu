#include "nought/cuda/backend/columns.h"
#include "nought/cuda/backend/kernel.h"
#include "nought/cuda/backend/launch.h"

namespace nought::cuda {
namespace {

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
__global__ void __launch_bounds__(kThreads) rms_norm_kernel(RmsNormArrays a, NormRows size, bool aligned) {
  using Real = accumulator_t<T>;
  constexpr int kWidth = kPackOf<T>;
  const int64_t n = size.n;
  const auto* const squares = a.squares.as<const Real>();
  for (int64_t row = blockIdx.x; row < size.rows; row += gridDim.x) {
    const T* const x = a.x.as<const T>() + row * n;
    const Real sum = squares != nullptr
                         ? squares[row]
                         : sum_over<Real>(x, n, aligned, [](int64_t, Real value) { return value * value; });
    const Real rstd = 1 / sqrt(sum / static_cast<Real>(squares != nullptr ? a.width : n) + static_cast<Real>(a.eps));
    if (threadIdx.x == 0) a.rstd.as<Real>()[row] = rstd;
    for_each_pack<kWidth>(n, [&](int64_t begin, auto count) {
      constexpr int kCount = decltype(count)::value;
      const Values<T, kCount> values(x + begin, aligned), weight(a.weight.as<const T>() + begin, aligned);
      Real y[kCount];
      for (int k = 0; k < kCount; ++k) y[k] = values[k] * rstd * (weight[k] + static_cast<Real>(a.weight_offset));
      write<T, kCount>(a.y.as<T>() + row * n, begin, aligned, y);
    });
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    rms_norm_backward_kernel(RmsNormBackwardArrays a, NormRows size, bool aligned) {
  using Real = accumulator_t<T>;
  constexpr int kWidth = kPackOf<T>;
  const int64_t n = size.n;
  const T* const weights = a.weight.as<const T>();
  const auto* const products = a.products.as<const Real>();
  const Real offset = static_cast<Real>(a.weight_offset);
  for (int64_t row = blockIdx.x; row < size.rows; row += gridDim.x) {
    const T *const x = a.x.as<const T>() + row * n, *const dy = a.dy.as<const T>() + row * n;
    T* const dx = a.dx.as<T>() + row * n;
    const Real rstd = a.rstd.as<const Real>()[row];
    Real projection;  // mean of the normalised x times its gradient: what moving along x itself does not change
    if (products != nullptr) {
      projection = products[row] * rstd / static_cast<Real>(a.width);
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
        if (a.accumulate_x) gradient[k] = Real{dx[begin + k]} + gradient[k];
      }
      write<T, kCount>(dx, begin, aligned, gradient);
    });
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) layer_norm_kernel(LayerNormArrays a, NormRows size, bool aligned) {
  using Real = accumulator_t<T>;
  constexpr int kWidth = kPackOf<T>;
  const int64_t n = size.n;
  for (int64_t row = blockIdx.x; row < size.rows; row += gridDim.x) {
    const T* const x = a.x.as<const T>() + row * n;
    const Real mean = sum_over<Real>(x, n, aligned, [](int64_t, Real value) { return value; }) / static_cast<Real>(n);
    const auto square = [mean](int64_t, Real value) { return (value - mean) * (value - mean); };
    const Real variance = sum_over<Real>(x, n, aligned, square) / static_cast<Real>(n);
    const Real rstd = 1 / sqrt(variance + static_cast<Real>(a.eps));
    if (threadIdx.x == 0) {
      a.mean.as<Real>()[row] = mean;
      a.rstd.as<Real>()[row] = rstd;
    }
    for_each_pack<kWidth>(n, [&](int64_t begin, auto count) {
      constexpr int kCount = decltype(count)::value;
      const Values<T, kCount> values(x + begin, aligned), weight(a.weight.as<const T>() + begin, aligned),
          bias(a.bias.as<const T>() + begin, aligned);
      Real y[kCount];
      for (int k = 0; k < kCount; ++k) y[k] = (values[k] - mean) * rstd * weight[k] + bias[k];
      write<T, kCount>(a.y.as<T>() + row * n, begin, aligned, y);
    });
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    layer_norm_backward_kernel(LayerNormBackwardArrays a, NormRows size, bool aligned) {
  using Real = accumulator_t<T>;
  constexpr int kWidth = kPackOf<T>;
  const int64_t n = size.n;
  const T* const weights = a.weight.as<const T>();
  for (int64_t row = blockIdx.x; row < size.rows; row += gridDim.x) {
    const T *const x = a.x.as<const T>() + row * n, *const dy = a.dy.as<const T>() + row * n;
    T* const dx = a.dx.as<T>() + row * n;
    const Real mean = a.mean.as<const Real>()[row], rstd = a.rstd.as<const Real>()[row];
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
        if (a.accumulate_x) gradient[k] = Real{dx[begin + k]} + gradient[k];
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
template <class T, class... Arrays>
bool rows_are_aligned(int64_t n, const Arrays&... arrays) {
  return n % kPackOf<T> == 0 && are_aligned(arrays.at...);
}

}  // namespace

void rms_norm(const Launch& where, const RmsNormArrays& a, NormRows size) {
  visit_float(a.x.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(where, size.rows, dim3(kThreads), rms_norm_kernel<T>, a, size,
           rows_are_aligned<T>(size.n, a.x, a.weight, a.y));
  });
}

void rms_norm_backward(const Launch& where, const RmsNormBackwardArrays& a, void* room, NormRows size) {
  visit_float(a.x.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Real = accumulator_t<T>;
    const WeightGradient<T> gradient{a.x.as<const T>(), a.dy.as<const T>(), nullptr, a.rstd.as<const Real>(), size.n};
    // First: dx may be dy.
    sum_columns(where, size.rows, size.n, gradient, static_cast<Real*>(room), a.d_weight, a.accumulate_weight);
    launch(where, size.rows, dim3(kThreads), rms_norm_backward_kernel<T>, a, size,
           rows_are_aligned<T>(size.n, a.x, a.weight, a.dy, a.dx));
  });
}

void layer_norm(const Launch& where, const LayerNormArrays& a, NormRows size) {
  visit_float(a.x.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(where, size.rows, dim3(kThreads), layer_norm_kernel<T>, a, size,
           rows_are_aligned<T>(size.n, a.x, a.weight, a.bias, a.y));
  });
}

void layer_norm_backward(const Launch& where, const LayerNormBackwardArrays& a, void* room, NormRows size) {
  visit_float(a.x.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Real = accumulator_t<T>;
    const WeightGradient<T> weight{a.x.as<const T>(), a.dy.as<const T>(), a.mean.as<const Real>(),
                                   a.rstd.as<const Real>(), size.n};
    // First: dx may be dy. The second sum finds the room free, in the order of the stream.
    auto* const parts = static_cast<Real*>(room);
    sum_columns(where, size.rows, size.n, weight, parts, a.d_weight, a.accumulate_weight);
    sum_columns(where, size.rows, size.n, BiasGradient<T>{a.dy.as<const T>(), size.n}, parts, a.d_bias,
                a.accumulate_weight);
    launch(where, size.rows, dim3(kThreads), layer_norm_backward_kernel<T>, a, size,
           rows_are_aligned<T>(size.n, a.x, a.weight, a.dy, a.dx));
  });
}

}  // namespace nought::cuda
