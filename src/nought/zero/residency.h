// Residency: where the parameters of each Unit are, and when they are whole.
//
// Without parameter sharding the flat buffer of a Unit is always whole. With it, each rank keeps its shard; a lease
// gathers the Unit into a buffer of its own, and the last release gives that buffer back. A prefetch starts the gather
// before the lease needs it. Updates of Units that share a bucket are gathered through it, in one collective.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "nought/comm/communicator.h"
#include "nought/zero/buckets.h"
#include "nought/zero/policy.h"

namespace nought {

class Residency {
 public:
  /// `bucket`: elements that one collective of an exchange takes; 0 = one Unit's.
  Residency(const Context& context, Communicator& ranks, Policy policy, DType dtype, int64_t bucket,
            const std::vector<std::unique_ptr<Unit>>& units);

  /// Makes the Unit whole and keeps it so until release(); leases nest.
  void lease(size_t unit);
  void release(size_t unit);
  /// Starts the gather of a Unit that will be leased soon; nothing if it is whole or on its way.
  void prefetch(size_t unit);

  /// The whole flat buffer (padded); Error if the Unit is not leased.
  Tensor whole(size_t unit) const;
  /// This rank's interval of the parameters: what the optimizer writes and checkpoints read. Waits for gathers of it.
  Tensor owned(size_t unit) const;
  /// Everything that this rank stores permanently: the owned interval when sharded, else the whole buffer.
  Tensor stored(size_t unit) const { return states_[unit].stored; }

  /// After the owners updated their intervals of whole buffers: all-gathers them. Each Unit waits at its next lease.
  void exchange_updates();
  /// Waits for everything in flight.
  void settle();

  const Partition& partition(size_t unit) const { return states_[unit].partition; }
  bool sharded() const { return policy_.shard_parameters; }

 private:
  struct State {
    Partition partition;
    std::string name;
    Tensor stored;    // the shard, or the whole
    Tensor gathered;  // the whole, while leased or on its way
    Event arrival;
    int leases = 0;
  };
  struct Exchange {
    Event event;
    const Bucket* bucket;
    Tensor packed;
  };
  void exchange(const Bucket& bucket);
  void land_oldest();
  /// Returns when the Unit's stored parameters are those of the last exchange.
  void arrive(size_t unit);

  Context context_;
  Communicator& ranks_;
  Policy policy_;
  DType dtype_;
  std::vector<State> states_;
  std::vector<Bucket> buckets_;
  std::deque<Exchange> exchanges_;  // of buckets of several Units, under way
};

}  // namespace nought
