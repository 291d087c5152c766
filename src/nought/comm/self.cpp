#include "nought/comm/self.h"

#include "nought/base/host.h"
#include "nought/comm/stream_communicator.h"

namespace nought {
namespace {

/// A group of one: every collective is a copy, or nothing.
class SelfTransport final : public Transport {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::string_view backend() const override { return "self"; }

  void broadcast(const Call&, const Tensor&, int) override {}
  void reduce(const Call&, const Tensor& in, const Tensor& out, int, ReduceOp) override { copy_now(in, out); }
  void all_reduce(const Call&, const Tensor&, ReduceOp) override {}
  void gather(const Call&, const Tensor& in, const Tensor& out, int) override { copy_now(in, out); }
  void all_gather(const Call&, const Tensor& shard, const Tensor& full) override { copy_now(shard, full); }
  void scatter(const Call&, const Tensor& in, const Tensor& out, int) override { copy_now(in, out); }
  void reduce_scatter(const Call&, const Tensor& full, const Tensor& shard, ReduceOp) override {
    copy_now(full, shard);
  }
  void all_to_all(const Call&, const Tensor& in, const Tensor& out) override { copy_now(in, out); }
  void all_to_all_v(const Call&, const Tensor& in, const Tensor& out, const RowCounts&) override { copy_now(in, out); }
  // The StreamCommunicator has refused every peer: a group of one has none.
  void send(const Call& call, const Tensor&, int, int) override { fail<CommError>("{} has no peer", call.str()); }
  void recv(const Call& call, const Tensor&, int, int) override { fail<CommError>("{} has no peer", call.str()); }
  void barrier(const Call&) override {}
  std::unique_ptr<Transport> split(const Call&, int, int) override { return std::make_unique<SelfTransport>(); }
  void cancel() override {}
};

}  // namespace

std::unique_ptr<Communicator> make_self_communicator() {
  return std::make_unique<StreamCommunicator>(std::make_unique<SelfTransport>(), std::make_shared<Stream>());
}

std::unique_ptr<Communicator> make_recorded_self_communicator() {
  auto recorder = std::make_shared<FlightRecorder>(FlightPage::make(), 0, 1, host_name());
  recorder->set_peers({recorder->page()});
  return std::make_unique<StreamCommunicator>(std::make_unique<SelfTransport>(), std::make_shared<Stream>(),
                                              std::move(recorder));
}

}  // namespace nought
