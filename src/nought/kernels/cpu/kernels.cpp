#include "nought/kernels/cpu/cpu.h"
#include "nought/kernels/cpu/rounded_products.h"
#include "nought/kernels/rounded_inputs.h"

namespace nought {
namespace {

class CpuKernels : public Kernels {
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

class RoundingCpuKernels final : public CpuKernels {
 public:
  std::string_view name() const override { return kRoundingKernels; }
  using CpuKernels::run;
  void run(const MatMul& op, Stream& stream) override {
    if (stream.runs_inline()) return cpu::run_rounded(op);
    stream.submit([op] { cpu::run_rounded(op); });
  }
};

}  // namespace

bool can_round_inputs() { return cpu::has_rounded_products(); }
std::unique_ptr<Kernels> make_rounding_cpu_kernels() {
  require<DeviceError>(can_round_inputs(),
                       "this CPU has neither AVX2 nor AVX-512: it cannot multiply inputs in 8 bits");
  return std::make_unique<RoundingCpuKernels>();
}
std::unique_ptr<Kernels> make_cpu_kernels() { return std::make_unique<CpuKernels>(); }

}  // namespace nought
