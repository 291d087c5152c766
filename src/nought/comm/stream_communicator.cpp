#include "nought/comm/stream_communicator.h"

#include <cstring>
#include <exception>
#include <utility>

#include "nought/base/text.h"
#include "nought/comm/flight_timeout.h"
#include "nought/tensor/late.h"

namespace nought {
namespace {

/// The stream of kernels on the device of a tensor; null on the host, and for a barrier.
std::shared_ptr<Stream> compute_of(const Tensor& tensor) {
  return tensor ? tensor.buffer()->memory().device().compute() : nullptr;
}

}  // namespace

std::string Call::str() const {
  if (bytes == 0) return fmt::format("{} in group of {}", name, size);
  return fmt::format("{} of {} {} in group of {}", name, format_bytes(bytes), name_of(dtype), size);
}

void Call::fail_timeout() const {
  const double seconds = std::chrono::duration<double>(timeout).count();
  const std::string what = fmt::format("{} timed out after {} on rank {}", str(),
                                       seconds < 10 ? fmt::format("{:.3g}s", seconds) : format_duration(seconds), rank);
  const std::string why = recorder == nullptr ? "" : explain_timeout(*recorder);
  fail<CollectiveTimeout>(
      "{}{}", what,
      why.empty() ? "; a peer is gone, slower than the timeout, or issued other collectives" : ": " + why);
}

std::string Call::with_mismatch(const std::string& message) const {
  const std::string why = recorder == nullptr ? "" : explain_mismatch(*recorder);
  return why.empty() ? message : fmt::format("{}: {}", message, why);
}

/// Every rank sends the record of its call to all, and compares theirs.
class StreamCommunicator::CallCheck {
 public:
  explicit CallCheck(int ranks)
      : own_(context_.empty({kBytes}, DType::u8, Category::communication).in_flight()),
        all_(context_.empty({ranks * kBytes}, DType::u8, Category::communication).in_flight()) {}

  /// On the communication stream. CommError if a rank's call differs from that of rank 0.
  void compare(Transport& transport, const Call& call, std::string_view group) const {
    const FlightCall mine = call.recorder->call(call.ticket);
    if (mine.number == 0 || mine.message()) return;  // messages have one peer, which may send at another time
    std::memcpy(own_.raw(), &mine, sizeof mine);
    Call comparison = call;
    comparison.name = "comparison of calls", comparison.bytes = kBytes, comparison.dtype = DType::u8;
    transport.run(comparison, {.kind = Collective::all_gather, .in = own_, .out = all_});
    const FlightCall first = call_of(0);
    for (int rank = 1; rank < call.size; ++rank) {
      const FlightCall other = call_of(rank);
      if (other.matches(first) && other.sequence == first.sequence) continue;
      const auto issued = [](const FlightCall& of) { return fmt::format("{} in step {}", of, of.step); };
      fail<CommError>("call {} of {} differs: rank 0 issues {}, rank {} issues {}; ranks must issue the same calls",
                      first.sequence, group, issued(first), rank, issued(other));
    }
  }

 private:
  static constexpr int64_t kBytes = sizeof(FlightCall);
  FlightCall call_of(int rank) const {
    FlightCall call;
    std::memcpy(&call, all_.raw() + rank * kBytes, sizeof call);
    return call;
  }

  Context context_ = Context::cpu();
  Tensor own_, all_;
};

void StreamCommunicator::check_calls(bool check) {
  check_ = check && recorder_ && size() > 1 ? std::make_shared<const CallCheck>(size()) : nullptr;
}

StreamCommunicator::StreamCommunicator(std::unique_ptr<Transport> transport, std::shared_ptr<Stream> stream,
                                       std::shared_ptr<FlightRecorder> recorder, uint64_t identity, std::string name)
    : transport_(std::move(transport)),
      stream_(std::move(stream)),
      recorder_(std::move(recorder)),
      name_(std::move(name)),
      exceptions_at_birth_(std::uncaught_exceptions()) {
  if (recorder_) flight_ = recorder_->join(identity, name_, rank(), size());
}

StreamCommunicator::~StreamCommunicator() {
  if (std::uncaught_exceptions() > exceptions_at_birth_) transport_->cancel();
  try {
    last_between_kernels_.wait();
    last_enqueued_.wait();           // a communicator has the one or the other
  } catch (const std::exception&) {  // it is thrown where its Event is waited for
  }
  // The transport goes where it worked: freeing an MPI communicator is a call to MPI.
  stream_->submit([this] { transport_.reset(); });
  stream_->synchronize();
  if (recorder_) recorder_->leave(flight_);
}

std::string StreamCommunicator::subject_of(const Call& call) {
  return call.recorder == nullptr ? "" : std::string(flight_text(call.recorder->call(call.ticket).subject));
}

Call StreamCommunicator::begun(const Collective& collective) {
  const Tensor& payload = collective.payload();
  Call call{.name = name_of(collective.kind),
            .bytes = payload ? payload.bytes() : 0,  // a barrier has none
            .dtype = payload.dtype(),
            .rank = rank(),
            .size = size(),
            .timeout = timeout_};
  if (recorder_ && call.size > 1) {
    call.recorder = recorder_.get();
    call.ticket = recorder_->submit(flight_, collective.kind, collective.op, call.dtype, call.bytes, collective.root);
  }
  return call;
}

template <class Body>
Event StreamCommunicator::enqueue(Call call, Collective&& collective, const std::shared_ptr<Stream>& compute,
                                  Body body) {
  if (followed_.state()) stream_->wait(std::exchange(followed_, {}));
  // What runs inline takes its turn among the kernels, where these run later.
  const bool between_kernels = compute && stream_->runs_inline();
  const Event before = compute && !between_kernels ? compute->record() : Event();
  Stream& stream = between_kernels ? *compute : *stream_;
  call.stream = &stream;
  const bool sends = collective.kind == Collective::send;
  const Event event = stream.submit([this, call, collective = std::move(collective), before, timeline = timeline_,
                                     check = check_, body = std::move(body)]() mutable {
    before.wait();
    // A group of one moves nothing.
    TimedScope scope(call.size > 1 ? timeline.get() : nullptr, TraceEventKind::collective, call.name, call.bytes);
    if (scope.recording()) scope.describe(subject_of(call), name_);
    call.deadline = std::chrono::steady_clock::now() + call.timeout;
    const FlightScope flight(call.recorder, call.ticket);
    if (check) check->compare(*transport_, call, name_);
    body(call, collective);
  });
  if (between_kernels) last_between_kernels_ = event;
  // Its receiver waits for it, and perhaps nobody here: a sender may want the answer first.
  if (sends) demand(event);
  return event;
}

/// The device does it in the order of its streams, and the host goes on.
template <class Body>
Event StreamCommunicator::enqueue_on_stream(Call call, Collective&& collective, Stream& compute, Body body) {
  Stream& device_stream = *transport_->device_stream();
  call.deadline = std::chrono::steady_clock::now() + call.timeout;
  if (check_) stream_->submit([&] { check_->compare(*transport_, call, name_); }).wait();
  call.stream = &device_stream;
  device_stream.wait(compute.record());
  const auto rooms = std::make_shared<std::vector<Tensor>>();
  call.rooms = rooms.get();
  auto* const timed = timeline_ && timeline_->recording() ? dynamic_cast<TimedStream*>(&device_stream) : nullptr;
  auto begin = timed ? timed->moment() : nullptr;
  if (call.recorder) recorder_->start(call.ticket);
  try {
    last_enqueued_ = device_stream.submit(
        [rooms, call, collective = std::move(collective), body = std::move(body)] { body(call, collective); });
  } catch (...) {
    if (call.recorder) recorder_->end(call.ticket, /*failed=*/true);
    throw;
  }
  if (timed) {
    const auto now = TraceEvent::Clock::now();  // the moments say when it was
    timeline_->add(
        {TraceEventKind::collective, std::string(call.name), now, now, call.bytes, 0, subject_of(call), name_},
        std::move(begin), timed->moment());
  }
  transport_->watch(call, last_enqueued_);
  return last_enqueued_;
}

template <class Body>
Event StreamCommunicator::issue(Collective&& collective, bool enqueued, Body body) {
  const int64_t elements = collective.elements_sent(rank(), size());
  Traffic::Count& count = traffic_.counts[static_cast<size_t>(collective.kind)];
  count.bytes += elements * size_of(collective.payload().dtype());
  count.elements += elements;
  count.calls += 1;
  const Call call = begun(collective);
  const auto compute = compute_of(collective.payload());
  if (enqueued) return enqueue_on_stream(call, std::move(collective), *compute, std::move(body));
  return enqueue(call, std::move(collective), compute, std::move(body));
}

bool StreamCommunicator::enqueues(const Collective& collective) const {
  return compute_of(collective.payload()) != nullptr && transport_->enqueues(collective);
}

Event StreamCommunicator::submit(Collective collective) {
  collective.check(rank(), size());
  collective.in = collective.in.in_flight(), collective.out = collective.out.in_flight();
  const bool enqueued = enqueues(collective);
  if (collective.kind == Collective::send_recv) return exchange(collective, enqueued);
  return issue(std::move(collective), enqueued,
               [this](const Call& call, const Collective& c) { transport_->run(call, c); });
}

Event StreamCommunicator::exchange(const Collective& both, bool enqueued) {
  Collective send{.kind = Collective::send, .in = both.in, .root = both.root, .tag = both.tag};
  Collective recv{.kind = Collective::recv, .out = both.out, .root = both.source, .tag = both.tag};
  if (enqueued) {
    issue(std::move(send), enqueued, [](const Call&, const Collective&) {});  // which the next one does
    const bool receives_there = enqueues(recv);
    return issue(std::move(recv), receives_there,
                 [this, both](const Call& call, const Collective&) { transport_->run(call, both); });
  }
  const auto posted = std::make_shared<Transport::Posted>([](const Call&) {});
  issue(std::move(send), enqueued,
        [this, posted](const Call& call, const Collective& c) { *posted = transport_->post(call, c); });
  return issue(std::move(recv), enqueued, [this, posted, sent = both.in](const Call& call, const Collective& c) {
    transport_->run(call, c);
    (*posted)(call);
  });
}

void StreamCommunicator::follow(const Event& event) {
  // What runs inline waits in the host's place, or takes its turn among kernels that run later.
  const auto device_stream = transport_->device_stream();
  if (device_stream == nullptr) return stream_->wait(event);
  device_stream->wait(event);
  followed_ = event;
}

void StreamCommunicator::with_transport(const std::function<void(std::unique_ptr<Transport>&)>& change,
                                        std::string words) {
  stream_->submit([&] { change(transport_); }).wait();
  words_ = std::move(words);
}

std::unique_ptr<Communicator> StreamCommunicator::split(int color, int key) {
  require<CommError>(color >= 0, "split: color {} is negative", color);
  std::unique_ptr<Transport> group;
  Collective splitting{.kind = Collective::split};
  enqueue(begun(splitting), std::move(splitting), /*compute=*/nullptr, [&](const Call& call, const Collective&) {
    group = transport_->split(call, color, key);
    // A group of one needs no transport, and the backend's is freed on its own stream.
    if (group->size() == 1) group.reset();
  }).wait();
  ++flight_.splits;
  if (!group) return make_self_communicator();
  auto communicator = std::make_unique<StreamCommunicator>(std::move(group), transport_->make_stream(), recorder_,
                                                           flight_.identity_of_split(color),
                                                           fmt::format("{}/{}.{}", name_, flight_.splits, color));
  communicator->set_timeout(timeout_);
  communicator->check_calls(check_ != nullptr);
  communicator->timeline_ = timeline_;
  return communicator;
}

}  // namespace nought
