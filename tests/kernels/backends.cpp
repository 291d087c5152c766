// The kernels that every machine has.
#include "support/kernel_backend.h"

namespace nought::test {

std::span<const BackendChoice> kernel_backends() {
  static constexpr BackendChoice kBackends[] = {{"cpu", make_cpu_kernels}, {"reference", make_reference_kernels}};
  return kBackends;
}

}  // namespace nought::test
