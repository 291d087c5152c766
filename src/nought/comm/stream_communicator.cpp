#include "nought/comm/stream_communicator.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <numeric>
#include <utility>

#include <fmt/ranges.h>

#include "nought/base/text.h"
#include "nought/comm/flight_timeout.h"
#include "nought/tensor/late.h"

namespace nought {

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
    transport.all_gather(comparison, own_, all_);
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
    last_on_lane_.wait();            // a communicator has the one or the other
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

Call StreamCommunicator::begun(Call call, const Issue& issue) {
  call.rank = rank();
  call.size = size();
  call.timeout = timeout_;
  if (recorder_ && call.size > 1) {
    call.recorder = recorder_.get();
    call.ticket = recorder_->submit(flight_, issue.collective, issue.op, call.dtype, call.bytes, issue.root);
  }
  return call;
}

Event StreamCommunicator::enqueue(Call call, Issue issue, Body body, const std::shared_ptr<Stream>& compute) {
  call = begun(call, issue);
  if (followed_.state()) stream_->wait(std::exchange(followed_, {}));
  // What runs inline takes its turn among the kernels, where these run later.
  const bool between_kernels = compute && stream_->runs_inline();
  const Event before = compute && !between_kernels ? compute->record() : Event();
  Stream& stream = between_kernels ? *compute : *stream_;
  call.stream = &stream;
  const Event event =
      stream.submit([this, call, before, timeline = timeline_, check = check_, body = std::move(body)]() mutable {
        before.wait();
        // A group of one moves nothing.
        TimedScope scope(call.size > 1 ? timeline.get() : nullptr, TraceEventKind::collective, call.name, call.bytes);
        if (scope.recording()) scope.describe(subject_of(call), name_);
        call.deadline = std::chrono::steady_clock::now() + call.timeout;
        const FlightScope flight(call.recorder, call.ticket);
        if (check) check->compare(*transport_, call, name_);
        body(call);
      });
  if (between_kernels) last_between_kernels_ = event;
  // Its receiver waits for it, and perhaps nobody here: a sender may want the answer first.
  if (issue.collective == Collective::send) demand(event);
  return event;
}

/// The device does it in the order of its streams, and the host goes on.
Event StreamCommunicator::enqueue_on_lane(Call call, Body body, Stream& compute) {
  Stream& lane = *transport_->lane();
  call.deadline = std::chrono::steady_clock::now() + call.timeout;
  if (check_) stream_->submit([&] { check_->compare(*transport_, call, name_); }).wait();
  call.stream = &lane;
  lane.wait(compute.record());
  const auto rooms = std::make_shared<std::vector<Tensor>>();
  call.rooms = rooms.get();
  auto* const timed = timeline_ && timeline_->recording() ? dynamic_cast<TimedStream*>(&lane) : nullptr;
  auto begin = timed ? timed->moment() : nullptr;
  if (call.recorder) recorder_->start(call.ticket);
  try {
    last_on_lane_ = lane.submit([rooms, call, body = std::move(body)] { body(call); });
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
  transport_->watch(call, last_on_lane_);
  return last_on_lane_;
}

Event StreamCommunicator::submit(Issue issue, const Tensor& payload, int64_t elements_sent, Body body) {
  const int64_t bytes = payload.defined() ? payload.bytes() : 0;  // a barrier has none
  const Call call{.name = name_of(issue.collective), .bytes = bytes, .dtype = payload.dtype()};
  Traffic::Count& count = traffic_.counts[static_cast<size_t>(issue.collective)];
  count.bytes += elements_sent * size_of(payload.dtype());
  count.elements += elements_sent;
  count.calls += 1;
  const auto compute = payload.defined() ? payload.buffer()->memory().device().compute() : nullptr;
  if (compute && transport_->rides(issue.collective, payload.in_flight(), issue.tag))
    return enqueue_on_lane(begun(call, issue), std::move(body), *compute);
  return enqueue(call, issue, std::move(body), compute);
}

void StreamCommunicator::check_parts(Collective::Kind collective, const Tensor& whole, const Tensor& part,
                                     int parts) const {
  require<ShapeError>(whole.defined() && part.defined(), "{} needs two tensors, got {} and {}", name_of(collective),
                      whole, part);
  require<ShapeError>(whole.dtype() == part.dtype() && whole.numel() == parts * part.numel(),
                      "{} in group of {}: {} must have the dtype and {} times the elements of {}", name_of(collective),
                      size(), whole, parts, part);
}

void StreamCommunicator::check_rank(Collective::Kind collective, std::string_view role, int rank) const {
  require<CommError>(0 <= rank && rank < size(), "{}: {} {} is not a rank of a group of {}", name_of(collective), role,
                     rank, size());
}

void StreamCommunicator::check_peer(Collective::Kind collective, int peer, int tag) const {
  check_rank(collective, "peer", peer);
  require<CommError>(peer != rank(), "{}: rank {} is itself; copy() moves data within a rank", name_of(collective),
                     peer);
  require<CommError>(0 <= tag && tag < 32767, "{}: tag {} is not in [0, 32767)", name_of(collective), tag);
}

Event StreamCommunicator::broadcast(Tensor tensor, int root) {
  check_rank(Collective::broadcast, "root", root);
  check_parts(Collective::broadcast, tensor, tensor, 1);
  const int64_t sent = rank() == root ? peers() * tensor.numel() : 0;
  return submit(
      {.collective = Collective::broadcast, .root = root}, tensor, sent,
      [this, tensor = tensor.in_flight(), root](const Call& call) { transport_->broadcast(call, tensor, root); });
}

Event StreamCommunicator::reduce(Tensor in, Tensor out, int root, ReduceOp op) {
  check_rank(Collective::reduce, "root", root);
  check_parts(Collective::reduce, in, rank() == root ? out : in, 1);
  const int64_t own = part_of(in.numel(), rank(), size()).size();
  const int64_t sent = in.numel() - own + (rank() == root ? 0 : own);
  return submit({.collective = Collective::reduce, .root = root, .op = op}, in, sent,
                [this, in = in.in_flight(), out = out.in_flight(), root, op](const Call& call) {
                  transport_->reduce(call, in, out, root, op);
                });
}

Event StreamCommunicator::all_reduce(Tensor tensor, ReduceOp op) {
  check_parts(Collective::all_reduce, tensor, tensor, 1);
  const int64_t own = part_of(tensor.numel(), rank(), size()).size();
  const int64_t sent = tensor.numel() - own + peers() * own;
  return submit(
      {.collective = Collective::all_reduce, .op = op}, tensor, sent,
      [this, tensor = tensor.in_flight(), op](const Call& call) { transport_->all_reduce(call, tensor, op); });
}

Event StreamCommunicator::gather(Tensor in, Tensor out, int root) {
  check_rank(Collective::gather, "root", root);
  check_parts(Collective::gather, rank() == root ? out : in, in, rank() == root ? size() : 1);
  const int64_t sent = rank() == root ? 0 : in.numel();
  return submit({.collective = Collective::gather, .root = root}, in, sent,
                [this, in = in.in_flight(), out = out.in_flight(), root](const Call& call) {
                  transport_->gather(call, in, out, root);
                });
}

Event StreamCommunicator::all_gather(Tensor shard, Tensor full) {
  check_parts(Collective::all_gather, full, shard, size());
  return submit(Collective::all_gather, full, peers() * shard.numel(),
                [this, shard = shard.in_flight(), full = full.in_flight()](const Call& call) {
                  transport_->all_gather(call, shard, full);
                });
}

Event StreamCommunicator::scatter(Tensor in, Tensor out, int root) {
  check_rank(Collective::scatter, "root", root);
  check_parts(Collective::scatter, rank() == root ? in : out, out, rank() == root ? size() : 1);
  const int64_t sent = rank() == root ? peers() * out.numel() : 0;
  return submit({.collective = Collective::scatter, .root = root}, out, sent,
                [this, in = in.in_flight(), out = out.in_flight(), root](const Call& call) {
                  transport_->scatter(call, in, out, root);
                });
}

Event StreamCommunicator::reduce_scatter(Tensor full, Tensor shard, ReduceOp op) {
  check_parts(Collective::reduce_scatter, full, shard, size());
  return submit({.collective = Collective::reduce_scatter, .op = op}, full, peers() * shard.numel(),
                [this, full = full.in_flight(), shard = shard.in_flight(), op](const Call& call) {
                  transport_->reduce_scatter(call, full, shard, op);
                });
}

Event StreamCommunicator::all_to_all(Tensor in, Tensor out) {
  check_parts(Collective::all_to_all, in, out, 1);
  require<ShapeError>(in.numel() % size() == 0, "all_to_all: {} does not divide into {} parts", in, size());
  require<ShapeError>(in.numel() == 0 || in.raw() != out.raw(), "all_to_all: in and out must be two tensors");
  return submit(
      Collective::all_to_all, in, in.numel() / size() * peers(),
      [this, in = in.in_flight(), out = out.in_flight()](const Call& call) { transport_->all_to_all(call, in, out); });
}

void StreamCommunicator::check_rows(const Tensor& in, const Tensor& out, const RowCounts& counts) const {
  const auto check = [&](std::string_view name, const Tensor& rows, const std::vector<int64_t>& count) {
    require<ShapeError>(std::ssize(count) == size() && *std::min_element(count.begin(), count.end()) >= 0,
                        "all_to_all_v in group of {}: {} has the counts [{}], expected {} that are at least 0", size(),
                        name, fmt::join(count, ", "), size());
    const int64_t sum = std::accumulate(count.begin(), count.end(), int64_t{0});
    require<ShapeError>(rows.defined() && rows.rank() > 0 && rows.dim(0) == sum,
                        "all_to_all_v: {} is {}, the counts say {} rows", name, rows, sum);
  };
  check("in", in, counts.sent);
  check("out", out, counts.received);
  const auto differ_in_rows = [&] {
    if (in.rank() != out.rank() || in.dtype() != out.dtype()) return false;
    for (int i = 1; i < in.rank(); ++i)
      if (in.dim(i) != out.dim(i)) return false;
    return true;
  };
  require<ShapeError>(differ_in_rows(), "all_to_all_v: in is {} and out {}, they must differ in their rows alone", in,
                      out);
  const auto own = static_cast<size_t>(rank());
  require<ShapeError>(counts.sent[own] == counts.received[own],
                      "all_to_all_v: rank {} sends itself {} rows and receives {}", rank(), counts.sent[own],
                      counts.received[own]);
  require<ShapeError>(in.numel() == 0 || in.raw() != out.raw(), "all_to_all_v: in and out must be two tensors");
}

Event StreamCommunicator::all_to_all_v(Tensor in, Tensor out, RowCounts counts) {
  check_rows(in, out, counts);
  const int64_t kept = rows_of(in, counts.sent, rank()).numel();
  return submit(Collective::all_to_all_v, in, in.numel() - kept,
                [this, in = in.in_flight(), out = out.in_flight(), counts = std::move(counts)](const Call& call) {
                  transport_->all_to_all_v(call, in, out, counts);
                });
}

Event StreamCommunicator::send(Tensor tensor, int destination, int tag) {
  check_peer(Collective::send, destination, tag);
  check_parts(Collective::send, tensor, tensor, 1);
  return submit({.collective = Collective::send, .root = destination, .tag = tag}, tensor, tensor.numel(),
                [this, tensor = tensor.in_flight(), destination, tag](const Call& call) {
                  transport_->send(call, tensor, destination, tag);
                });
}

Event StreamCommunicator::send_in_place(Tensor tensor, int destination, int tag) {
  check_peer(Collective::send, destination, tag);
  check_parts(Collective::send, tensor, tensor, 1);
  return submit({.collective = Collective::send, .root = destination, .tag = tag}, tensor, tensor.numel(),
                [this, tensor = tensor.in_flight(), destination, tag](const Call& call) {
                  transport_->post(call, tensor, destination, tag)(call);
                });
}

Event StreamCommunicator::send_recv(Tensor sent, int destination, Tensor received, int source, int tag) {
  check_peer(Collective::send, destination, tag), check_peer(Collective::recv, source, tag);
  check_parts(Collective::send, sent, sent, 1), check_parts(Collective::recv, received, received, 1);
  if (transport_->rides(Collective::send, sent.in_flight(), tag)) {
    submit({.collective = Collective::send, .root = destination, .tag = tag}, sent, sent.numel(),
           [](const Call&) {});  // which the next one does
    return submit({.collective = Collective::recv, .root = source, .tag = tag}, received, 0,
                  [this, sent = sent.in_flight(), destination, received = received.in_flight(),
                   source](const Call& call) { transport_->send_recv(call, sent, destination, received, source); });
  }
  const auto posted = std::make_shared<Transport::Posted>([](const Call&) {});
  submit({.collective = Collective::send, .root = destination, .tag = tag}, sent, sent.numel(),
         [this, posted, sent = sent.in_flight(), destination, tag](const Call& call) {
           *posted = transport_->post(call, sent, destination, tag);
         });
  return submit(
      {.collective = Collective::recv, .root = source, .tag = tag}, received, 0,
      [this, posted, sent = sent.in_flight(), received = received.in_flight(), source, tag](const Call& call) {
        transport_->recv(call, received, source, tag);
        (*posted)(call);
      });
}

Event StreamCommunicator::recv(Tensor tensor, int source, int tag) {
  check_peer(Collective::recv, source, tag);
  check_parts(Collective::recv, tensor, tensor, 1);
  return submit({.collective = Collective::recv, .root = source, .tag = tag}, tensor, 0,
                [this, tensor = tensor.in_flight(), source, tag](const Call& call) {
                  transport_->recv(call, tensor, source, tag);
                });
}

Event StreamCommunicator::barrier() {
  return submit(Collective::barrier, Tensor(), 0, [this](const Call& call) { transport_->barrier(call); });
}

void StreamCommunicator::follow(const Event& event) {
  // What runs inline waits in the host's place, or takes its turn among kernels that run later.
  const auto lane = transport_->lane();
  if (lane == nullptr) return stream_->wait(event);
  lane->wait(event);
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
  enqueue({.name = "split"}, {.collective = Collective::split}, [&](const Call& call) {
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
