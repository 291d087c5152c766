#include "nought/cuda/backend/map.h"
#include "nought/cuda/backend/operations.h"
#include "nought/kernels/narrowing.h"

namespace nought::cuda {
namespace {

/// A thread draws one Philox block, which serves the eight elements that share it.
template <class T>
__global__ void __launch_bounds__(kThreads)
    round_stochastic_kernel(const float* x, T* y, uint64_t key, int64_t first, int64_t n) {
  constexpr int64_t kShared = 8;
  const int64_t begin = first / kShared, end = (first + n + kShared - 1) / kShared;
  for (int64_t block = begin + thread_of_grid(); block < end; block += threads_of_grid()) {
    const Philox random = philox(key, static_cast<uint64_t>(block));
    for (int64_t draw = block * kShared; draw < (block + 1) * kShared; ++draw) {
      const int64_t i = draw - first;
      if (i < 0 || i >= n) continue;
      y[i] = round_stochastic(x[i], random_bits16(random, static_cast<uint64_t>(draw)), T());
    }
  }
}

/// As Fp8Format of kernels/rounding.h has them.
struct Grid {
  int mantissa_bits, least_exponent;
  float largest;
};

/// fp8_scale() of kernels/rounding.h.
__device__ double scale_for(float largest, const Grid& grid, int margin) {
  if (largest == 0 || !isfinite(largest)) return 1;
  constexpr int kLimit = 100;
  const int exponent = ilogb(double{grid.largest} / double{largest}) - margin;
  return ldexp(1.0, exponent < -kLimit ? -kLimit : exponent > kLimit ? kLimit : exponent);
}

/// In f64, where x * 2^k and its rounding to a whole number are exact, as on the reference.
__device__ double on_grid(double x, const Grid& grid) {
  if (!isfinite(x) || x == 0) return x;
  int exponent = ilogb(x);
  if (exponent < grid.least_exponent) exponent = grid.least_exponent;
  const double a = fabs(ldexp(rint(ldexp(x, grid.mantissa_bits - exponent)), exponent - grid.mantissa_bits));
  return copysign(a < double{grid.largest} ? a : double{grid.largest}, x);
}

template <class T>
struct RoundedToGrid {
  const float* largest;  // null: by scale
  Grid grid;
  double scale;
  int margin;
  __device__ T operator()(T x) const {
    const double taken = largest != nullptr ? scale_for(*largest, grid, margin) : scale;
    return rounded<T>(on_grid(double{accumulator_t<T>{x}} * taken, grid) / taken);
  }
};

}  // namespace

void start(const RoundStochastic& op, Place& at) {
  const int64_t n = op.x.numel(), pieces = (n + 8 * kThreads) / (8 * kThreads);
  visit_float(op.y.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (sizeof(T) == 2)
      launch(at.launch, n == 0 ? 0 : pieces, dim3(kThreads), round_stochastic_kernel<T>, op.x.data<float>(),
             op.y.data<T>(), op.key, op.first, n);
  });
}

void start(const RoundFp8& op, Place& at) {
  const Grid grid = op.format == Fp8::e4m3 ? Grid{3, -6, 448.0f} : Grid{2, -14, 57344.0f};
  visit_float(op.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const RoundedToGrid<T> rounded{array_of(op.largest).as<const float>(), grid, op.scale, op.margin};
    map(at.launch, op.x.numel(), rounded, op.y.data<T>(), static_cast<const T*>(op.x.data<T>()));
  });
}

}  // namespace nought::cuda
