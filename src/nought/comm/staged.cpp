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

  void broadcast(const Call& call, const Tensor& tensor, int root) override {
    const Twin here = rank() == root ? fetched(tensor) : room_for(tensor);
    inner_->broadcast(call, here.seen, root);
    if (rank() != root) bring(here, tensor);
  }
  void reduce(const Call& call, const Tensor& in, const Tensor& out, int root, ReduceOp op) override {
    const Twin result = room_for(out);
    inner_->reduce(call, fetched(in).seen, result.seen, root, op);
    if (rank() == root) bring(result, out);
  }
  void all_reduce(const Call& call, const Tensor& tensor, ReduceOp op) override {
    const Twin here = fetched(tensor);
    inner_->all_reduce(call, here.seen, op);
    bring(here, tensor);
  }
  void gather(const Call& call, const Tensor& in, const Tensor& out, int root) override {
    const Twin result = room_for(out);
    inner_->gather(call, fetched(in).seen, result.seen, root);
    if (rank() == root) bring(result, out);
  }
  void all_gather(const Call& call, const Tensor& shard, const Tensor& full) override {
    const Twin result = room_for(full);
    inner_->all_gather(call, fetched(shard).seen, result.seen);
    bring(result, full);
  }
  void scatter(const Call& call, const Tensor& in, const Tensor& out, int root) override {
    const Twin result = room_for(out);
    inner_->scatter(call, rank() == root ? fetched(in).seen : in, result.seen, root);
    bring(result, out);
  }
  void reduce_scatter(const Call& call, const Tensor& full, const Tensor& shard, ReduceOp op) override {
    const Twin result = room_for(shard);
    inner_->reduce_scatter(call, fetched(full).seen, result.seen, op);
    bring(result, shard);
  }
  void all_to_all(const Call& call, const Tensor& in, const Tensor& out) override {
    const Twin result = room_for(out);
    inner_->all_to_all(call, fetched(in).seen, result.seen);
    bring(result, out);
  }
  void all_to_all_v(const Call& call, const Tensor& in, const Tensor& out, const RowCounts& counts) override {
    const Twin result = room_for(out);
    inner_->all_to_all_v(call, fetched(in).seen, result.seen, counts);
    bring(result, out);
  }
  void send(const Call& call, const Tensor& tensor, int destination, int tag) override {
    inner_->send(call, fetched(tensor).seen, destination, tag);
  }
  Posted post(const Call& call, const Tensor& tensor, int destination, int tag) override {
    const Twin here = fetched(tensor);
    return [here, posted = inner_->post(call, here.seen, destination, tag)](const Call& later) { posted(later); };
  }
  void recv(const Call& call, const Tensor& tensor, int source, int tag) override {
    const Twin here = room_for(tensor);
    inner_->recv(call, here.seen, source, tag);
    bring(here, tensor);
  }
  void barrier(const Call& call) override { inner_->barrier(call); }
  std::unique_ptr<Transport> split(const Call& call, int color, int key) override {
    return std::make_unique<StagedTransport>(inner_->split(call, color, key), context_);
  }
  std::shared_ptr<Stream> make_stream() const override { return inner_->make_stream(); }
  std::exception_ptr peer_failure(const Call& call) override { return inner_->peer_failure(call); }
  void cancel() override { inner_->cancel(); }

 private:
  /// A tensor of the host in place of one of the device: as copies know it, in the rank's pinned pool, and as the
  /// transport does, in the pool of its own buffers, with which it is added.
  struct Twin {
    Tensor pinned, seen;
  };
  /// A tensor of the host like this one; the tensor itself if it lies there.
  Twin room_for(const Tensor& tensor) const {
    if (!is_far(tensor)) return {tensor, tensor};
    const Tensor pinned =
        Tensor::empty(*context_.memory, tensor.shape(), tensor.dtype(), Category::communication, Pool::host);
    std::shared_ptr<void> bytes(pinned.buffer(), pinned.raw());
    const auto buffer = seen_->adopt(std::move(bytes), pinned.buffer()->bytes(), Category::communication);
    return {pinned, Tensor(buffer, 0, tensor.shape(), tensor.dtype())};
  }
  Twin fetched(const Tensor& tensor) const {
    const Twin here = room_for(tensor);
    move(tensor, here.pinned);
    return here;
  }
  void bring(const Twin& here, const Tensor& to) const { move(here.pinned, to); }
  /// Waits until the bytes are there: the transport reads them next, or the Event of the collective says so.
  void move(const Tensor& from, const Tensor& to) const {
    if (!from || from.raw() == to.raw()) return;
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
