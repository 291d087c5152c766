#include "nought/kernels/timed.h"

#include <utility>

namespace nought {

namespace {

class TimedKernels final : public Kernels {
 public:
  TimedKernels(std::shared_ptr<Kernels> inner, std::shared_ptr<Timeline> timeline)
      : inner_(std::move(inner)), timeline_(std::move(timeline)) {}
  std::string_view name() const override { return inner_->name(); }
#define NOUGHT_RUN(Op)                                                 \
  void run(const Op& op, Stream& stream) override {                    \
    const TimedScope scope(timeline_.get(), SpanKind::operation, #Op); \
    inner_->run(op, stream);                                           \
  }
  NOUGHT_OPERATIONS(NOUGHT_RUN)
#undef NOUGHT_RUN

 private:
  std::shared_ptr<Kernels> inner_;
  std::shared_ptr<Timeline> timeline_;
};

}  // namespace

std::unique_ptr<Kernels> make_timed_kernels(std::shared_ptr<Kernels> inner, std::shared_ptr<Timeline> timeline) {
  return std::make_unique<TimedKernels>(std::move(inner), std::move(timeline));
}

}  // namespace nought
