#include "nought/cuda/backend/combine.h"
#include "nought/cuda/backend/kernel.h"

namespace nought::cuda {
namespace {

/// The inputs travel with the launch.
struct Candidates {
  const void* at[kMostInputs];
  int count;
};

/// As comm/reduction has it: the first of those that are equal, and a NaN stays.
template <class T, class Real>
__global__ void __launch_bounds__(kThreads) extremes_kernel(Candidates inputs, bool greatest, T* out, int64_t n) {
  for (int64_t i = thread_of_grid(); i < n; i += threads_of_grid()) {
    T chosen = static_cast<const T*>(inputs.at[0])[i];
    for (int k = 1; k < inputs.count; ++k) {
      const T value = static_cast<const T*>(inputs.at[k])[i];
      const Real a{value}, b{chosen};
      if ((greatest ? a > b : a < b) || a != a) chosen = value;
    }
    out[i] = chosen;
  }
}

}  // namespace

void extremes(const Launch& where, std::span<const Array> inputs, Array out, bool greatest, int64_t n) {
  Candidates taken{};
  for (const Array& input : inputs) taken.at[taken.count++] = input.at;
  visit_dtype(out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Real = std::conditional_t<std::is_integral_v<T>, std::type_identity<T>, std::type_identity<accumulator_t<T>>>;
    launch(where, blocks_of_threads_for(n), dim3(kThreads), extremes_kernel<T, typename Real::type>, taken, greatest,
           out.as<T>(), n);
  });
}

}  // namespace nought::cuda
