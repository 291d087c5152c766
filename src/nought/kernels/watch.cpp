#include "nought/kernels/watch.h"

#include <utility>

namespace nought {

namespace {

class WatchingKernels final : public Kernels {
 public:
  WatchingKernels(std::shared_ptr<Kernels> inner, Watcher watcher)
      : inner_(std::move(inner)), watcher_(std::move(watcher)) {}
  std::string_view name() const override { return inner_->name(); }
#define NOUGHT_RUN(Op) \
  void run(const Op& op, Stream& stream) override { watched(op, stream); }
  NOUGHT_OPERATIONS(NOUGHT_RUN)
#undef NOUGHT_RUN

 private:
  template <class Op>
  void watched(const Op& op, Stream& stream) {
    inner_->run(op, stream);
    for_each_operand(op, [&](const Operand& operand) {
      const Tensor& tensor = operand.tensor;
      if (!operand.use.writes() || operand.use.may_be_infinite || !tensor.defined() || !is_float(tensor.dtype()))
        return;
      if (!operand.rows) return watcher_(operation_name(op), operand.result_name(), tensor);
      for (int64_t i = 0; i < operand.rows->count; ++i)
        watcher_(operation_name(op), operand.result_name(), operand.rows->row(i));
    });
  }

  std::shared_ptr<Kernels> inner_;
  Watcher watcher_;
};

}  // namespace

std::unique_ptr<Kernels> make_watching_kernels(std::shared_ptr<Kernels> inner, Watcher watcher) {
  return std::make_unique<WatchingKernels>(std::move(inner), std::move(watcher));
}

}  // namespace nought
