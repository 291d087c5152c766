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
    const Tensor here = rank() == root ? fetched(tensor) : room_for(tensor);
    inner_->broadcast(call, here, root);
    if (rank() != root) bring(here, tensor);
  }
  void reduce(const Call& call, const Tensor& in, const Tensor& out, int root, ReduceOp op) override {
    const Tensor result = room_for(out);
    inner_->reduce(call, fetched(in), result, root, op);
    if (rank() == root) bring(result, out);
  }
  void all_reduce(const Call& call, const Tensor& tensor, ReduceOp op) override {
    const Tensor here = fetched(tensor);
    inner_->all_reduce(call, here, op);
    bring(here, tensor);
  }
  void gather(const Call& call, const Tensor& in, const Tensor& out, int root) override {
    const Tensor result = room_for(out);
    inner_->gather(call, fetched(in), result, root);
    if (rank() == root) bring(result, out);
  }
  void all_gather(const Call& call, const Tensor& shard, const Tensor& full) override {
    const Tensor result = room_for(full);
    inner_->all_gather(call, fetched(shard), result);
    bring(result, full);
  }
  void scatter(const Call& call, const Tensor& in, const Tensor& out, int root) override {
    const Tensor result = room_for(out);
    inner_->scatter(call, rank() == root ? fetched(in) : in, result, root);
    bring(result, out);
  }
  void reduce_scatter(const Call& call, const Tensor& full, const Tensor& shard, ReduceOp op) override {
    const Tensor result = room_for(shard);
    inner_->reduce_scatter(call, fetched(full), result, op);
    bring(result, shard);
  }
  void all_to_all(const Call& call, const Tensor& in, const Tensor& out) override {
    const Tensor result = room_for(out);
    inner_->all_to_all(call, fetched(in), result);
    bring(result, out);
  }
  void all_to_all_v(const Call& call, const Tensor& in, const Tensor& out, const RowCounts& counts) override {
    const Tensor result = room_for(out);
    inner_->all_to_all_v(call, fetched(in), result, counts);
    bring(result, out);
  }
  void send(const Call& call, const Tensor& tensor, int destination, int tag) override {
    inner_->send(call, fetched(tensor), destination, tag);
  }
  Posted post(const Call& call, const Tensor& tensor, int destination, int tag) override {
    const Tensor here = fetched(tensor);
    return [here, posted = inner_->post(call, here, destination, tag)](const Call& later) { posted(later); };
  }
  void recv(const Call& call, const Tensor& tensor, int source, int tag) override {
    const Tensor here = room_for(tensor);
    inner_->recv(call, here, source, tag);
    bring(here, tensor);
  }
  void barrier(const Call& call) override { inner_->barrier(call); }
  std::unique_ptr<Transport> split(const Call& call, int color, int key) override {
    return std::make_unique<StagedTransport>(inner_->split(call, color, key), context_);
  }
  std::shared_ptr<Stream> make_stream() const override { return inner_->make_stream(); }
  void cancel() override { inner_->cancel(); }

 private:
  /// Tensors in flight have the addresses of kernels, and their buffers say where these lie.
  static bool is_far(const Tensor& tensor) {
    return tensor && tensor.buffer()->pool() == Pool::device && !tensor.buffer()->memory().device().is_host();
  }
  /// A tensor of the host like this one; the tensor itself if it lies there.
  Tensor room_for(const Tensor& tensor) const {
    if (!is_far(tensor)) return tensor;
    return Tensor::empty(*context_.memory, tensor.shape(), tensor.dtype(), Category::communication, Pool::host);
  }
  Tensor fetched(const Tensor& tensor) const {
    const Tensor here = room_for(tensor);
    move(tensor, here);
    return here;
  }
  void bring(const Tensor& here, const Tensor& to) const { move(here, to); }
  /// Waits until the bytes are there: the transport reads them next, or the Event of the collective says so.
  void move(const Tensor& from, const Tensor& to) const {
    if (!from || from.raw() == to.raw()) return;
    copy(from, to, *copies_);
    copies_->record().wait();
  }

  std::unique_ptr<Transport> inner_;
  Context context_;
  std::shared_ptr<Stream> copies_;
};

}  // namespace

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
