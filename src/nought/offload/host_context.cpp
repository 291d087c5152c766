#include "nought/offload/host_context.h"

namespace nought {

Context host_context(const Context& context) {
  if (context.memory->is_virtual()) return {context.memory, context.kernels};
  if (context.kernels->name() == "reference") return {context.memory, make_reference_kernels()};
  return {context.memory, make_cpu_kernels()};
}

}  // namespace nought
