#include "nought/comm/staged.h"

#include <utility>

namespace nought {
namespace {

class StagedTransport final : public Transport {
 public:
  StagedTransport(std::unique_ptr<Transport> inner, Context context)
      : inner_(std::move(inner)),
        context_(std::move(context)),
        copies_(context_.memory->device().make_stream("staging")) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string_view backend() const override { return inner_->backend(); }

  /// What this rank reads is brought to the host before, what it gets is brought to the device afterwards.
  void run(const Call& call, const Collective& there) override {
    Tensor result;
    const Collective here = fetched(there, &result);
    inner_->run(call, here);
    if (result) move(result, there.out);
  }
  Posted post(const Call& call, const Collective& send) override {
    const Collective here = fetched(send);
    return [here, posted = inner_->post(call, here)](const Call& later) { posted(later); };
  }
  std::unique_ptr<Transport> split(const Call& call, int color, int key) override {
    return std::make_unique<StagedTransport>(inner_->split(call, color, key), context_);
  }
  std::shared_ptr<Stream> make_stream() const override { return inner_->make_stream(); }
  std::exception_ptr peer_failure(const Call& call) override { return inner_->peer_failure(call); }
  void cancel() override { inner_->cancel(); }

 private:
  /// The call with tensors of the host in place of tensors of the device, and in them what this rank reads. A transport
  /// knows them in the pool of its own buffers, with which they are added. Copies know them in the rank's pinned pool:
  /// `result` becomes the pinned tensor of `out` if this rank writes it.
  Collective fetched(const Collective& there, Tensor* result = nullptr) const {
    Collective here = there;
    here.visit(rank(), [&](Tensor& tensor, Role role) {
      const Tensor pinned = is_far(tensor) ? room_for(tensor) : tensor;
      if (role != Role::out) move(tensor, pinned);
      if (role != Role::in && result) *result = pinned;
      if (is_far(tensor)) tensor = as_seen(pinned);
    });
    return here;
  }
  Tensor room_for(const Tensor& tensor) const {
    return Tensor::empty(*context_.memory, tensor.shape(), tensor.dtype(), Category::communication, Pool::host);
  }
  Tensor as_seen(const Tensor& pinned) const {
    std::shared_ptr<void> bytes(pinned.buffer(), pinned.raw());
    const auto buffer = seen_->adopt(std::move(bytes), pinned.buffer()->bytes(), Category::communication);
    return Tensor(buffer, 0, pinned.shape(), pinned.dtype());
  }
  /// Waits until the bytes are there: the transport reads them next, or the Event of the collective says so.
  void move(const Tensor& from, const Tensor& to) const {
    if (from.raw() == to.raw()) return;
    copy(from, to, *copies_);
    copies_->record().wait();
  }

  std::unique_ptr<Transport> inner_;
  Context context_;
  std::shared_ptr<Memory> seen_ = Memory::create();  // it owns nothing: the rank's ledger has the bytes
  std::shared_ptr<Stream> copies_;
};

}  // namespace

bool is_far(const Tensor& tensor) {
  return tensor && tensor.buffer()->pool() == Pool::device && !tensor.buffer()->memory().device().is_host();
}

bool needs_staging(const Context& context) {
  Device& device = context.memory->device();
  return !device.is_host() && device.host_side() != nullptr;
}

Context beneath_staging(const Context& context) { return needs_staging(context) ? Context::cpu() : context; }

std::unique_ptr<Transport> staged(std::unique_ptr<Transport> inner, const Context& context) {
  if (!needs_staging(context)) return inner;
  return std::make_unique<StagedTransport>(std::move(inner), context);
}

}  // namespace nought
