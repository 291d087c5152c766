// Communicator: the collectives of a group of ranks, asynchronous and with a fixed order of additions.
//
// Design goals: every collective returns an Event. Reductions add in rank order 0..N-1 and accumulate in fp32 (integers
// exactly), so a result is the same on every backend and in every run. Each call has a timeout and names itself when it
// fails. Bytes sent are counted. A group of one costs nothing.
// Non-goals: matching collectives that are issued in different orders. Every rank issues the same calls in the same
// order, from one thread.
//
// The Event keeps the tensors alive. They must not be written until it is done. The collectives of one communicator run
// in order on its communication stream, each after what the compute stream of the tensors' device was given before.
#pragma once

#include <chrono>
#include <memory>
#include <string_view>
#include <utility>

#include "nought/comm/collective.h"
#include "nought/kernels/kernels.h"
#include "nought/tensor/stream.h"
#include "nought/tensor/tensor.h"
#include "nought/tensor/timeline.h"

namespace nought {

class FlightRecorder;

/// How long a collective may take unless set_timeout() says otherwise; that of torch and DeepSpeed.
inline constexpr std::chrono::minutes kDefaultTimeout{30};

/// A collective did not end in time. The message tells what the ranks do.
class CollectiveTimeout : public CommError {
 public:
  using CommError::CommError;
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// "self", "thread" or "mpi".
  virtual std::string_view backend() const = 0;

  /// Issues the call. The functions below make the struct of each collective.
  virtual Event submit(Collective collective) = 0;

  /// Copies root's tensor to all ranks.
  Event broadcast(Tensor tensor, int root) {
    return submit({.kind = Collective::broadcast, .out = std::move(tensor), .root = root});
  }
  /// tensor = the reduction of all ranks' tensors, in place. Any length. A rank sends 2 (N-1)/N of the tensor's bytes.
  Event all_reduce(Tensor tensor, ReduceOp op = ReduceOp::sum) {
    return submit({.kind = Collective::all_reduce, .out = std::move(tensor), .op = op});
  }
  /// out on root, [N * in.numel()], = all ranks' in, by rank. out is ignored on other ranks.
  Event gather(Tensor in, Tensor out, int root) {
    return submit({.kind = Collective::gather, .in = std::move(in), .out = std::move(out), .root = root});
  }
  /// full, [N * shard.numel()], = all ranks' shards, by rank. shard may be this rank's part of full, which saves a
  /// copy.
  Event all_gather(Tensor shard, Tensor full) {
    return submit({.kind = Collective::all_gather, .in = std::move(shard), .out = std::move(full)});
  }
  /// shard = this rank's part of the reduction of all ranks' full, [N * shard.numel()]. shard may be this rank's part
  /// of full.
  Event reduce_scatter(Tensor full, Tensor shard, ReduceOp op = ReduceOp::sum) {
    return submit({.kind = Collective::reduce_scatter, .in = std::move(full), .out = std::move(shard), .op = op});
  }
  /// Sends part r of in to rank r. Part r of out = what rank r sent here. in and out have the same number of elements,
  /// a multiple of N, and must not overlap.
  Event all_to_all(Tensor in, Tensor out) {
    return submit({.kind = Collective::all_to_all, .in = std::move(in), .out = std::move(out)});
  }
  /// All-to-all with parts of different lengths: sends the first counts.sent[0] rows of in to rank 0, the next
  /// counts.sent[1] to rank 1, and so on. out = the rows that came, by rank: counts.received[r] from rank r. What a
  /// rank sends to another must be what that one receives. in and out are [rows, ...], differ in their rows alone and
  /// must not overlap; there may be no rows.
  Event all_to_all_v(Tensor in, Tensor out, RowCounts counts) {
    return submit(
        {.kind = Collective::all_to_all_v, .in = std::move(in), .out = std::move(out), .counts = std::move(counts)});
  }
  /// Sends to another rank. It is done when the tensor may be written again, which may be as late as when the receiver
  /// has it; later calls of this group wait for that.
  Event send(Tensor tensor, int destination, int tag = 0) {
    return submit({.kind = Collective::send, .in = std::move(tensor), .root = destination, .tag = tag});
  }
  /// send() of one tensor and recv() of another, at once: ranks that pass something round a circle do not wait
  /// for each other to begin. Is done when both are.
  Event send_recv(Tensor sent, int destination, Tensor received, int source, int tag = 0) {
    return submit({.kind = Collective::send_recv,
                   .in = std::move(sent),
                   .out = std::move(received),
                   .root = destination,
                   .source = source,
                   .tag = tag});
  }
  /// Receives what `source` sent with this tag, into a tensor of the same dtype and number of elements.
  Event recv(Tensor tensor, int source, int tag = 0) {
    return submit({.kind = Collective::recv, .out = std::move(tensor), .root = source, .tag = tag});
  }
  /// Is done when all ranks have called it.
  Event barrier() { return submit({.kind = Collective::barrier}); }

  /// Calls that are issued from now on begin when the event is done, and fail with it: what one group has formed goes
  /// on in another, and the host waits for neither.
  virtual void follow(const Event& event) = 0;

  /// Makes new groups: the ranks with the same color (>= 0) form one, ordered by (key, rank). Blocking; all ranks call
  /// it. Each group has a communication stream of its own, so ranks may issue the calls of different groups in
  /// different orders. A group of one runs inline, so wait first for whatever writes what it reads.
  virtual std::unique_ptr<Communicator> split(int color, int key) = 0;

  /// What was sent by the collectives issued so far, including those in flight.
  virtual Traffic traffic() = 0;
  /// Records later collectives, and later calls of wait(), on the timeline. null: stops recording.
  virtual void record(std::shared_ptr<Timeline> timeline) = 0;
  /// The timeline on which this rank records, or null.
  virtual Timeline* timeline() const = 0;
  /// stream.wait(event), recorded on the timeline. A compute stream that runs inline waits here.
  void wait(const Event& event, Stream& stream) const {
    const TimedScope scope(event.ready() ? nullptr : timeline(), TraceEventKind::wait, "wait");
    stream.wait(event);
  }
  /// How long a collective may take before it fails with CollectiveTimeout: kDefaultTimeout, unless this is called.
  virtual void set_timeout(std::chrono::milliseconds timeout) = 0;
  /// For debugging: before each collective the ranks compare what they are about to call. CommError names both sides of
  /// a mismatch.
  virtual void check_calls(bool /*check*/) {}
  /// What records this rank's calls (comm/flight_recorder.h); null if nothing does, as in a group of one.
  virtual FlightRecorder* recorder() const { return nullptr; }
};

/// A group of one rank, in which nothing moves.
std::unique_ptr<Communicator> make_self_communicator();

}  // namespace nought
