#include "nought/kernels/cpu/cpu.h"

namespace nought {
namespace {

class CpuKernels final : public Kernels {
 public:
  CpuKernels() { cpu::bf16_products(); }  // what cannot be chosen is refused here, not among the threads of a kernel
  std::string_view name() const override { return "cpu"; }
  // An inline stream is done when it returns: it needs no copy of the operation.
#define NOUGHT_RUN(Op)                              \
  void run(const Op& op, Stream& stream) override { \
    if (stream.runs_inline()) return cpu::run(op);  \
    stream.submit([op] { cpu::run(op); });          \
  }
  NOUGHT_OPERATIONS(NOUGHT_RUN)
#undef NOUGHT_RUN
};

}  // namespace

std::unique_ptr<Kernels> make_cpu_kernels() { return std::make_unique<CpuKernels>(); }

}  // namespace nought
