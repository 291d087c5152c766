// Operations that make each element of an output from the same elements of inputs.
#pragma once

#include "nought/cuda/backend/kernel.h"

namespace nought::cuda {

template <int kWidth, class F, class Out, class... In>
__device__ inline void map_pack(const F& f, Out* out, const Pack<In, kWidth>&... in) {
  Pack<Out, kWidth> result;
  for (int k = 0; k < kWidth; ++k) result.values[k] = f(in.values[k]...);
  store(out, result);
}

/// out[i] = f(in[i]...). Packs if all addresses allow it; what is left over by elements. out may be one of in.
template <int kWidth, class F, class Out, class... In>
__global__ void __launch_bounds__(kThreads) map_kernel(F f, int64_t n, bool aligned, Out* out, const In*... in) {
  const int64_t packs = aligned ? n / kWidth : 0;
  for (int64_t pack = thread_of_grid(); pack < packs; pack += threads_of_grid())
    map_pack<kWidth>(f, out + pack * kWidth, load<kWidth>(in + pack * kWidth)...);
  for (int64_t i = packs * kWidth + thread_of_grid(); i < n; i += threads_of_grid()) out[i] = f(in[i]...);
}

template <class F, class Out, class... In>
void map(const Launch& where, int64_t n, const F& f, Out* out, const In*... in) {
  constexpr int kWidth = kPackOf<Out, In...>;
  const int64_t pieces = (n + int64_t{kThreads} * kWidth - 1) / (int64_t{kThreads} * kWidth);
  launch(where, pieces, dim3(kThreads), map_kernel<kWidth, F, Out, In...>, f, n, are_aligned(out, in...), out, in...);
}

}  // namespace nought::cuda
