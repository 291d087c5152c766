#include "nought/kernels/reference/reference.h"

namespace nought {
namespace {

class ReferenceKernels final : public Kernels {
 public:
  std::string_view name() const override { return "reference"; }
#define NOUGHT_RUN(Op)                              \
  void run(const Op& op, Stream& stream) override { \
    stream.submit([op] { reference::run(op); });    \
  }
  NOUGHT_OPERATIONS(NOUGHT_RUN)
#undef NOUGHT_RUN
};

}  // namespace

std::unique_ptr<Kernels> make_reference_kernels() { return std::make_unique<ReferenceKernels>(); }

}  // namespace nought
