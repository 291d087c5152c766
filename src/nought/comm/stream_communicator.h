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

  Event submit(Collective collective) override;
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
  /// What one rank does in every collective, for check_calls().
  class CallCheck;
  /// Counts and records the call, and lets `body` run on the transport's device stream or in turn on the communication
  /// stream.
  template <class Body>
  Event issue(Collective&& collective, bool enqueued, Body body);
  template <class Body>
  Event enqueue(Call call, Collective&& collective, const std::shared_ptr<Stream>& compute, Body body);
  template <class Body>
  Event enqueue_on_stream(Call call, Collective&& collective, Stream& compute, Body body);
  bool enqueues(const Collective& collective) const;
  /// A send_recv as the two calls that it is for counters and records.
  Event exchange(const Collective& both, bool enqueued);
  /// The call with what its messages and the recorder need of it.
  Call begun(const Collective& collective);
  /// What the call is about, in words; empty if it is not recorded.
  static std::string subject_of(const Call& call);

  std::unique_ptr<Transport> transport_;
  std::shared_ptr<Stream> stream_;
  Event last_between_kernels_;  // the last call that takes its turn on a compute stream
  Event last_enqueued_;
  Event
      followed_;  // what the next call that runs on the communication stream waits for, where there is a device stream
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
