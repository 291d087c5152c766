#include "nought/comm/self.h"

#include "nought/base/host.h"
#include "nought/comm/stream_communicator.h"

namespace nought {
namespace {

/// The turn of a collective among the tasks of a stream: copies are made there. A device runs them when it has done
/// what it was given before, and not as the host submits them.
class Turn final : public Stream {
 public:
  explicit Turn(const Call& call) : stream_(*call.stream) {}
  void copy_bytes(const std::byte* from, std::byte* to, size_t count) override { stream_.copy_bytes(from, to, count); }

 private:
  Stream& stream_;
};

void copy_in_turn(const Call& call, const Tensor& from, const Tensor& to) {
  Turn turn(call);
  copy(from, to, turn);
}

/// A group of one: every collective is a copy, or nothing.
class SelfTransport final : public Transport {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::string_view backend() const override { return "self"; }

  void broadcast(const Call&, const Tensor&, int) override {}
  void reduce(const Call& call, const Tensor& in, const Tensor& out, int, ReduceOp) override {
    copy_in_turn(call, in, out);
  }
  void all_reduce(const Call&, const Tensor&, ReduceOp) override {}
  void gather(const Call& call, const Tensor& in, const Tensor& out, int) override { copy_in_turn(call, in, out); }
  void all_gather(const Call& call, const Tensor& shard, const Tensor& full) override {
    copy_in_turn(call, shard, full);
  }
  void scatter(const Call& call, const Tensor& in, const Tensor& out, int) override { copy_in_turn(call, in, out); }
  void reduce_scatter(const Call& call, const Tensor& full, const Tensor& shard, ReduceOp) override {
    copy_in_turn(call, full, shard);
  }
  void all_to_all(const Call& call, const Tensor& in, const Tensor& out) override { copy_in_turn(call, in, out); }
  void all_to_all_v(const Call& call, const Tensor& in, const Tensor& out, const RowCounts&) override {
    copy_in_turn(call, in, out);
  }
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
