// Communicator: the collectives between a group of ranks, asynchronous and in a fixed order of additions.
//
// Design goals: every collective returns an Event; reductions add in rank order 0..N-1 with fp32 accumulation (exact
// for integers), so that a result is the same on every backend and every run; each call is bounded by a timeout and
// names itself when it fails; bytes sent are counted; a group of one costs nothing. Non-goals: matching collectives
// issued in different orders. Every rank issues the same calls in the same order, from one thread.
//
// Tensors are captured by the Event and must not be written until it is done. Collectives of one communicator run in
// order on its communication stream.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "nought/kernels/kernels.h"
#include "nought/tensor/stream.h"
#include "nought/tensor/tensor.h"
#include "nought/tensor/timeline.h"

namespace nought {

enum class Collective : uint8_t {
  broadcast,
  reduce,
  all_reduce,
  gather,
  all_gather,
  scatter,
  reduce_scatter,
  all_to_all,
  send,
  recv,
  barrier
};
inline constexpr int kNumCollectives = 11;
std::string_view name_of(Collective collective);

enum class ReduceOp : uint8_t { sum, max, min };

/// What this rank sent, by collective: payload bytes that left for other ranks, elements, and number of calls. For a
/// group of N: all_gather and reduce_scatter (N-1) shards, all_reduce both of them, all_to_all (N-1)/N of the tensor,
/// gather its part (except root), reduce a reduce-scatter and a gather, scatter and broadcast (N-1) parts on root alone
/// (a broadcast's tree spreads that load over the ranks, the sum is the same), send the tensor.
struct Traffic {
  struct Count {
    int64_t bytes = 0, elements = 0, calls = 0;
  };
  std::array<Count, kNumCollectives> counts{};
  const Count& operator[](Collective collective) const { return counts[static_cast<size_t>(collective)]; }
  int64_t total_bytes() const;
  int64_t total_elements() const;
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// "self", "thread" or "mpi".
  virtual std::string_view backend() const = 0;

  /// root's tensor to all.
  virtual Event broadcast(Tensor tensor, int root) = 0;
  /// out on root = reduction of all in; out is ignored elsewhere.
  virtual Event reduce(Tensor in, Tensor out, int root, ReduceOp op = ReduceOp::sum) = 0;
  /// In place: a reduce-scatter and an all-gather, 2 (N-1)/N of the bytes sent. Any length.
  virtual Event all_reduce(Tensor tensor, ReduceOp op = ReduceOp::sum) = 0;
  /// out on root ([N * in.numel()], ignored elsewhere) = all in, by rank.
  virtual Event gather(Tensor in, Tensor out, int root) = 0;
  /// full ([N * shard.numel()]) = all shards, by rank. shard may be this rank's part of full: then nothing is copied.
  virtual Event all_gather(Tensor shard, Tensor full) = 0;
  /// out = this rank's part of root's in ([N * out.numel()], ignored elsewhere).
  virtual Event scatter(Tensor in, Tensor out, int root) = 0;
  /// shard = this rank's part of the reduction of all full ([N * shard.numel()]). shard may be this rank's part of
  /// full.
  virtual Event reduce_scatter(Tensor full, Tensor shard, ReduceOp op = ReduceOp::sum) = 0;
  /// Part r of in goes to rank r; out holds what each rank sent here. in and out: equal sizes divisible by N, apart.
  virtual Event all_to_all(Tensor in, Tensor out) = 0;
  /// To another rank. Never waits for the receiver: the tensor is copied, and may be written when the Event is done.
  virtual Event send(Tensor tensor, int destination, int tag = 0) = 0;
  virtual Event recv(Tensor tensor, int source, int tag = 0) = 0;
  virtual Event barrier() = 0;

  /// The ranks with the same color (>= 0) form a new group, ordered by (key, rank). Blocking; all ranks call it. The
  /// group has a communication stream of its own: ranks may issue the calls of different groups in different orders. A
  /// group of one runs inline: wait for what it reads.
  virtual std::unique_ptr<Communicator> split(int color, int key) = 0;

  /// Sent by the collectives issued so far, those in flight included.
  virtual Traffic traffic() = 0;
  /// Later collectives, and those who wait() for them, put themselves on the timeline; null: no more.
  virtual void record(std::shared_ptr<Timeline> timeline) = 0;
  /// Where this rank records what it does, or null.
  virtual Timeline* timeline() const = 0;
  /// event.wait() on the record.
  void wait(const Event& event) const {
    const TimedScope scope(event.ready() ? nullptr : timeline(), SpanKind::wait, "wait");
    event.wait();
  }
  /// What each collective may take before it fails with CommError; default 10 minutes.
  virtual void set_timeout(std::chrono::milliseconds timeout) = 0;
};

/// A group of one: nothing moves.
std::unique_ptr<Communicator> make_self_communicator();

}  // namespace nought
