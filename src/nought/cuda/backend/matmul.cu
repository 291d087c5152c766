#include "nought/cuda/backend/four_bits.h"
#include "nought/cuda/backend/kernel.h"
#include "nought/cuda/backend/matmul.h"

namespace nought::cuda {
namespace {

template <class T, class C>
__global__ void __launch_bounds__(kThreads)
    begin_product_kernel(const T* bias, C* c, bool accumulate, int64_t m, int64_t n) {
  using Real = accumulator_t<C>;
  for (int64_t i = thread_of_grid(); i < m * n; i += threads_of_grid()) {
    Real sum = bias != nullptr ? static_cast<Real>(bias[i % n]) : Real{0};
    if (accumulate) sum += static_cast<Real>(c[i]);
    c[i] = static_cast<C>(sum);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    decode_weight_kernel(const int8_t* codes, const f16_t* scales, T* y, int64_t n) {
  using Real = accumulator_t<T>;
  for (int64_t i = thread_of_grid(); i < n; i += threads_of_grid())
    y[i] = static_cast<T>(static_cast<Real>(codes[i]) * static_cast<Real>(float{scales[i / kCodeBlock]}));
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    decode_four_bits_kernel(const uint8_t* codes, const float* scales, T* y, int64_t n, FourBitTable table) {
  for (int64_t i = thread_of_grid(); i < n; i += threads_of_grid())
    y[i] = static_cast<T>(table.value(codes, scales, i));
}

}  // namespace

void begin_product(const Launch& where, Array bias, Array c, bool accumulate, int64_t m, int64_t n) {
  visit_float(c.dtype, [&](auto tag_c) {
    using C = typename decltype(tag_c)::type;
    visit_float(bias ? bias.dtype : c.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      if constexpr (std::is_same_v<T, C> || std::is_same_v<C, float>)
        launch(where, blocks_of_threads_for(m * n), dim3(kThreads), begin_product_kernel<T, C>, bias.as<const T>(),
               c.as<C>(), accumulate, m, n);
    });
  });
}

void decode_weight(const Launch& where, const Weight& weight, Array y) {
  const int64_t n = weight.numel();
  visit_float(y.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (weight.is_four_bits()) {
      launch(where, blocks_of_threads_for(n), dim3(kThreads), decode_four_bits_kernel<T>, weight.values.data<uint8_t>(),
             weight.scales.data<float>(), y.as<T>(), n, FourBitTable(weight.kind()));
    } else {
      launch(where, blocks_of_threads_for(n), dim3(kThreads), decode_weight_kernel<T>, weight.values.data<int8_t>(),
             weight.scales.data<f16_t>(), y.as<T>(), n);
    }
  });
}

}  // namespace nought::cuda
