#include "nought/zero/host_gradients.h"

#include "nought/offload/host_context.h"

namespace nought {

HostGradients::HostGradients(const Context& context)
    : context_(context),
      host_(host_context(context)),
      down_(context.memory->device().make_stream("gradients down")),
      adder_(context.memory->is_virtual() ? Stream::Kind::run_inline : Stream::Kind::worker, "gradients") {}

Tensor HostGradients::make(int64_t numel, DType dtype) const {
  return Tensor::zeros(*context_.memory, {numel}, dtype, Category::gradients, Pool::host);
}

Event HostGradients::take(const Tensor& from, const Tensor& into, bool add) {
  while (under_way_.size() >= kUnderWay) await_oldest();
  const bool direct = !add && from.dtype() == into.dtype();
  const Tensor landed =
      direct ? into : Tensor::empty(*context_.memory, from.shape(), from.dtype(), Category::gradients, Pool::host);
  down_->wait(context_.stream->record());
  copy(from, landed, *down_);
  bytes_ += from.bytes();
  const Event arrived = down_->record();
  // Whether it is added or lies where it belongs: what was added before comes first.
  const Event added = adder_.submit([host = host_, arrived, landed, into, add, direct] {
    arrived.wait();
    if (add) {
      host.run(AddTo{.x = landed, .into = into});
    } else if (!direct) {
      host.run(Cast{.x = landed, .y = into});
    }
  });
  under_way_.push_back({added, from, landed});
  return added;
}

void HostGradients::await_oldest() {
  under_way_.front().added.wait();
  under_way_.pop_front();
}

void HostGradients::settle() {
  while (!under_way_.empty()) await_oldest();
}

}  // namespace nought
