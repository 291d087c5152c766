#include "nought/kernels/timed.h"

#include <utility>

#include <fmt/core.h>

#include "nought/kernels/work.h"

namespace nought {

namespace {

template <class Op>
std::string full_name(const char* name, const Op& /*op*/) {
  return name;
}

std::string full_name(const char* name, const MatMul& op) {
  const int64_t inner = op.transpose_a ? op.a.rows() : op.a.dim(-1), columns = op.c.dim(-1);
  return fmt::format("{} {} x {} x {}{}{}", name, op.c.numel() / columns, columns, inner, op.transpose_a ? ", a'" : "",
                     op.transpose_b ? ", b'" : "");
}

class TimedKernels final : public Kernels {
 public:
  TimedKernels(std::shared_ptr<Kernels> inner, std::shared_ptr<Timeline> timeline)
      : inner_(std::move(inner)), timeline_(std::move(timeline)) {}
  std::string_view name() const override { return inner_->name(); }
#define NOUGHT_RUN(Op) \
  void run(const Op& op, Stream& stream) override { timed(#Op, op, stream); }
  NOUGHT_OPERATIONS(NOUGHT_RUN)
#undef NOUGHT_RUN

 private:
  template <class Op>
  void timed(const char* name, const Op& op, Stream& stream) {
    if (!timeline_->recording()) return inner_->run(op, stream);
    const TraceEvent::Clock::time_point begin = TraceEvent::Clock::now();
    inner_->run(op, stream);
    const TraceEvent::Clock::time_point end = TraceEvent::Clock::now();
    const Work work = work_of(op);
    timeline_->add(
        {TraceEventKind::operation, full_name(name, op), begin, end, static_cast<int64_t>(work.bytes), work.flops});
  }

  std::shared_ptr<Kernels> inner_;
  std::shared_ptr<Timeline> timeline_;
};

}  // namespace

std::unique_ptr<Kernels> make_timed_kernels(std::shared_ptr<Kernels> inner, std::shared_ptr<Timeline> timeline) {
  return std::make_unique<TimedKernels>(std::move(inner), std::move(timeline));
}

}  // namespace nought
