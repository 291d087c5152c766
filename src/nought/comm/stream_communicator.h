// StreamCommunicator: a Communicator made of a Transport and the stream on which its calls run in order.
#pragma once

#include <functional>
#include <memory>

#include "nought/comm/transport.h"

namespace nought {

class StreamCommunicator final : public Communicator {
 public:
  static constexpr uint64_t kWorldIdentity = 1;

  /// Nobody else's tasks may wait on this stream for other ranks: what waits in one group must not hold up another.
  /// recorder: of this rank, or null. The group of all ranks has the name "world".
  StreamCommunicator(std::unique_ptr<Transport> transport, std::shared_ptr<Stream> stream,
                     std::shared_ptr<FlightRecorder> recorder = nullptr, uint64_t identity = kWorldIdentity,
                     std::string name = "world");
  /// Waits for the calls in flight. While an exception unwinds, it cancels them instead.
  ~StreamCommunicator() override;

  int rank() const override { return transport_->rank(); }
  int size() const override { return transport_->size(); }
  std::string_view backend() const override { return transport_->backend(); }

  Event broadcast(Tensor tensor, int root) override;
  Event reduce(Tensor in, Tensor out, int root, ReduceOp op) override;
  Event all_reduce(Tensor tensor, ReduceOp op) override;
  Event gather(Tensor in, Tensor out, int root) override;
  Event all_gather(Tensor shard, Tensor full) override;
  Event scatter(Tensor in, Tensor out, int root) override;
  Event reduce_scatter(Tensor full, Tensor shard, ReduceOp op) override;
  Event all_to_all(Tensor in, Tensor out) override;
  Event all_to_all_v(Tensor in, Tensor out, RowCounts counts) override;
  Event send(Tensor tensor, int destination, int tag) override;
  Event send_in_place(Tensor tensor, int destination, int tag) override;
  Event send_recv(Tensor sent, int destination, Tensor received, int source, int tag) override;
  Event recv(Tensor tensor, int source, int tag) override;
  Event barrier() override;
  void follow(const Event& event) override;
  std::unique_ptr<Communicator> split(int color, int key) override;

  Traffic traffic() override { return traffic_; }
  void record(std::shared_ptr<Timeline> timeline) override { timeline_ = std::move(timeline); }
  Timeline* timeline() const override { return timeline_.get(); }
  void set_timeout(std::chrono::milliseconds timeout) override { timeout_ = timeout; }
  void check_calls(bool check) override;
  FlightRecorder* recorder() const override { return recorder_.get(); }

  /// Calls change(transport) on the communication stream; it may put another one in its place. Blocking; before the
  /// first call with a tensor of a device. `words`: what is said of the transport from now on.
  void with_transport(const std::function<void(std::unique_ptr<Transport>&)>& change, std::string words);
  const std::string& words_of_transport() const { return words_; }

 private:
  using Body = std::function<void(const Call&)>;
  /// What one rank does in every collective, for check_calls().
  class CallCheck;
  /// Beside the call itself, what makes it the same on all ranks.
  struct Issue {
    Collective::Kind collective = Collective::broadcast;
    int root = -1;  // or the peer of a message
    ReduceOp op = ReduceOp::sum;
    int tag = 0;  // of a message
  };
  Event submit(Issue issue, const Tensor& payload, int64_t elements_sent, Body body);
  Event submit(Collective::Kind collective, const Tensor& payload, int64_t elements_sent, Body body) {
    return submit({.collective = collective}, payload, elements_sent, std::move(body));
  }
  /// What the call is about, in words; empty if it is not recorded.
  static std::string subject_of(const Call& call);
  Event enqueue(Call call, Issue issue, Body body, const std::shared_ptr<Stream>& compute = nullptr);
  /// The same on the transport's lane.
  Event enqueue_on_lane(Call call, Body body, Stream& compute);
  /// The call with what its messages and the recorder need of it.
  Call begun(Call call, const Issue& issue);
  /// ShapeError unless both are defined, have one dtype, and `whole` has `parts` times as many elements as `part`.
  void check_parts(Collective::Kind collective, const Tensor& whole, const Tensor& part, int parts) const;
  /// ShapeError unless the rows of all_to_all_v() are as many as the counts say.
  void check_rows(const Tensor& in, const Tensor& out, const RowCounts& counts) const;
  void check_rank(Collective::Kind collective, std::string_view role, int rank) const;
  void check_peer(Collective::Kind collective, int peer, int tag) const;
  int64_t peers() const { return size() - 1; }

  std::unique_ptr<Transport> transport_;
  std::shared_ptr<Stream> stream_;
  Event last_between_kernels_;  // the last call that takes its turn on a compute stream
  Event last_on_lane_;
  Event followed_;  // what the next call that runs on the communication stream waits for, where there is a lane
  std::string words_;
  std::shared_ptr<Timeline> timeline_;
  std::shared_ptr<FlightRecorder> recorder_;
  FlightMembership flight_;
  std::string name_;
  std::shared_ptr<const CallCheck> check_;  // null: calls are not compared
  std::chrono::milliseconds timeout_ = kDefaultTimeout;
  int exceptions_at_birth_;
  Traffic traffic_;
};

}  // namespace nought
