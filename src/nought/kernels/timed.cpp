#include "nought/kernels/timed.h"

#include <utility>

#include "nought/kernels/arguments.h"
#include "nought/kernels/work.h"

namespace nought {

namespace {

template <class Op>
std::string full_name(const Op& op) {
  std::string name(operation_name(op));
  if constexpr (requires { op.label(); }) name += ' ' + op.label();
  return name;
}

class TimedKernels final : public Kernels {
 public:
  TimedKernels(std::shared_ptr<Kernels> inner, std::shared_ptr<Timeline> timeline)
      : inner_(std::move(inner)), timeline_(std::move(timeline)) {}
  std::string_view name() const override { return inner_->name(); }
#define NOUGHT_RUN(Op) \
  void run(const Op& op, Stream& stream) override { timed(op, stream); }
  NOUGHT_OPERATIONS(NOUGHT_RUN)
#undef NOUGHT_RUN

 private:
  template <class Op>
  void timed(const Op& op, Stream& stream) {
    if (!timeline_->recording()) return inner_->run(op, stream);
    const TraceEvent::Clock::time_point begin = TraceEvent::Clock::now();
    std::shared_ptr<Moment> begins = timeline_->moment(TraceEventKind::operation);
    inner_->run(op, stream);
    const TraceEvent::Clock::time_point end = TraceEvent::Clock::now();
    std::shared_ptr<Moment> ends = timeline_->moment(TraceEventKind::operation);
    const Work work = work_of(op);
    timeline_->add({TraceEventKind::operation, full_name(op), begin, end, static_cast<int64_t>(work.bytes), work.flops,
                    arguments_of(op)},
                   std::move(begins), std::move(ends));
  }

  std::shared_ptr<Kernels> inner_;
  std::shared_ptr<Timeline> timeline_;
};

}  // namespace

std::unique_ptr<Kernels> make_timed_kernels(std::shared_ptr<Kernels> inner, std::shared_ptr<Timeline> timeline) {
  return std::make_unique<TimedKernels>(std::move(inner), std::move(timeline));
}

}  // namespace nought
