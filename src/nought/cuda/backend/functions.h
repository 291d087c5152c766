// Functions of one variable for device code: in fp32 by the polynomials of kernels/cpu/math-inl.h, step by step, so
// that elementwise operations have the bits of a CPU with fused multiply-add; in f64 by the library.
#pragma once

#include <bit>
#include <numbers>

#include "nought/cuda/backend/kernel.h"

namespace nought::cuda {

/// a * b + c, rounded once.
__device__ inline float multiply_add(float a, float b, float c) { return fmaf(a, b, c); }
__device__ inline double multiply_add(double a, double b, double c) { return fma(a, b, c); }

/// e^x = mantissa * scale for x in [-87, 88].
struct Exponential {
  float mantissa, scale;
};
__device__ inline Exponential exponential(float x) {
  constexpr float kBias = 12582912.0f + 127.0f;
  const float shifted = fmaf(x, std::numbers::log2e_v<float>, kBias), n = shifted - kBias;
  const float r = fmaf(-n, 1.42860677e-6f, fmaf(-n, 0.693145752f, x));
  float q = 0.001381454007f;
  q = fmaf(q, r, 0.008368745108f);
  q = fmaf(q, r, 0.04166839079f);
  q = fmaf(q, r, 0.166665204f);
  q = fmaf(q, r, 0.4999999343f);
  q = fmaf(q, r, 1.0f);
  q = fmaf(q, r, 1.0f);
  return {q, std::bit_cast<float>(std::bit_cast<uint32_t>(shifted) << 23)};
}

/// e^x for x <= 88: 0 below -87, NaN for NaN.
__device__ inline float exponential_of(float x) {
  const Exponential e = exponential(x);
  return x < -87.0f ? 0.0f : e.mantissa * e.scale;
}
__device__ inline double exponential_of(double x) { return exp(x); }

/// 1 + e^-x, of which a sigmoid is the inverse.
__device__ inline float sigmoid_divisor(float x) {
  const Exponential e = exponential(fmaxf(fminf(-x, 87.0f), -87.0f));
  return fmaf(e.mantissa, e.scale, 1.0f);
}
__device__ inline double sigmoid_divisor(double x) { return 1 + exp(-x); }

template <class Real>
__device__ Real sigmoid(Real x) {
  return 1 / sigmoid_divisor(x);
}

__device__ inline float tangent(float x) {  // hyperbolic
  const float magnitude = fabsf(x), square = x * x;
  const float decay = exponential_of(-2.0f * magnitude);
  const float far = copysignf((1.0f - decay) / (1.0f + decay), x);
  float series = -1382.0f / 155925.0f;
  series = fmaf(series, square, 62.0f / 2835.0f);
  series = fmaf(series, square, -17.0f / 315.0f);
  series = fmaf(series, square, 2.0f / 15.0f);
  series = fmaf(series, square, -1.0f / 3.0f);
  return magnitude < 0.35f ? fmaf(series * square, x, x) : far;
}
__device__ inline double tangent(double x) { return tanh(x); }

/// A sigmoid for results that are rounded to 16 bits: by the instructions for powers and inverses, to a few units of
/// fp32's last place. Memory is then the limit of activations, and no longer arithmetic.
__device__ inline float rough_sigmoid(float x) { return rough_inverse(1.0f + power_of_2(-kLog2E * x)); }

/// The cumulative distribution function of the standard normal distribution, and its density.
template <class Real>
struct Normal {
  Real cdf, density;
};
template <bool kRough = false>
__device__ inline Normal<float> normal(float x) {
  const float magnitude = fminf(fabsf(x), 16.0f), divisor = fmaf(magnitude, 0.27f, 1.0f);
  const float t = kRough ? rough_inverse(divisor) : 1.0f / divisor;
  float p = 0.02920583342f;
  p = fmaf(p, t, -0.1277225574f);
  p = fmaf(p, t, 0.1724360972f);
  p = fmaf(p, t, -0.07234456237f);
  p = fmaf(p, t, 0.1100542173f);
  p = fmaf(p, t, 0.07107758252f);
  p = fmaf(p, t, 0.1020635491f);
  p = fmaf(p, t, 0.1075070932f);
  p = fmaf(p, t, 0.1077227585f);
  const float square = magnitude * magnitude, lost = 0.5f * fmaf(magnitude, magnitude, -square);
  const float exponent = -(0.5f * square);
  const float near = kRough ? power_of_2(kLog2E * exponent) : exponential_of(exponent), decay = fmaf(-near, lost, near);
  const float left = decay * (t * p);
  constexpr float kDensity = std::numbers::inv_sqrtpi_v<float> / std::numbers::sqrt2_v<float>;
  return {x < 0.0f ? left : 1.0f - left, decay * kDensity};
}
template <bool kRough = false>
__device__ inline Normal<double> normal(double x) {
  constexpr double kRoot = std::numbers::sqrt2, kDensity = std::numbers::inv_sqrtpi / std::numbers::sqrt2;
  return {erfc(-x / kRoot) / 2, exp(-x * x / 2) * kDensity};
}

/// Writes kCount neighbours from the type of sums.
template <class T, int kCount>
__device__ inline void write_values(T* to, bool aligned, const accumulator_t<T>* values) {
  if constexpr (kCount > 1) {
    Pack<T, kCount> pack;
    for (int k = 0; k < kCount; ++k) pack.values[k] = static_cast<T>(values[k]);
    store(to, pack, aligned);
  } else {
    *to = static_cast<T>(values[0]);
  }
}

/// f(row, begin, count) for packs of rows of n elements, and for what is left over one by one; count is a
/// std::integral_constant. A block has a row.
template <int kWidth, class F>
__global__ void __launch_bounds__(kThreads) rows_kernel(F f, int64_t rows, int64_t n) {
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x)
    for_each_pack<kWidth>(n, [&](int64_t begin, auto count) { f(row, begin, count); });
}
template <int kWidth, class F>
void for_each_row(const Launch& where, int64_t rows, int64_t n, const F& f) {
  launch(where, rows, dim3(kThreads), rows_kernel<kWidth, F>, f, rows, n);
}

/// f(i) for i in [0, n): f writes what it makes.
template <class F>
__global__ void __launch_bounds__(kThreads) each_kernel(F f, int64_t n) {
  for (int64_t i = thread_of_grid(); i < n; i += threads_of_grid()) f(i);
}
template <class F>
void for_each(const Launch& where, int64_t n, const F& f) {
  launch(where, blocks_of_threads_for(n), dim3(kThreads), each_kernel<F>, f, n);
}

/// True if packs of kWidth elements of every row can be loaded and stored.
template <int kWidth, class... Ts>
bool packs_fit(int64_t n, const Ts*... addresses) {
  return n % kWidth == 0 && are_aligned(addresses...);
}

}  // namespace nought::cuda
