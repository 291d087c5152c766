// The kernels of CUDA, and those of the CPU for the tests of CUDA that compare both.
#include "cuda/staged_kernels.h"
#include "support/kernel_backend.h"

namespace nought::test {

std::span<const BackendChoice> kernel_backends() {
#ifdef NOUGHT_CUDA_EMULATED
  constexpr bool is_slow = true;
#else
  constexpr bool is_slow = false;
#endif
  static constexpr BackendChoice kBackends[] = {{"cuda", make_staged_kernels, is_slow, !is_slow},
                                                {"cpu", make_cpu_kernels},
                                                {"reference", make_reference_kernels}};
  return kBackends;
}

}  // namespace nought::test
