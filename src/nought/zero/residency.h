// Residency: where the parameters of each Unit are, and when they are whole.
//
// Without parameter sharding the flat buffers of a Unit are always whole. With it, each rank keeps its shard of every
// segment, trained or not; a lease gathers the Unit into buffers of its own, and the last release gives them back. A
// prefetch starts the gather before the lease needs it. Only trained segments are exchanged after an update; those that
// share a bucket are gathered through it, in one collective. Experts' segments are shared out over ranks of their own:
// those that hold the same experts.
//
// Where the mesh knows the hosts, a lease gathers in two levels (arXiv 2205.00119, section 3.2): first the ranks that
// have one place on their hosts gather their shards, and then those of a host gather what these have, one host's shards
// after the other's, so that each comes to lie where it belongs.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "nought/comm/mesh.h"
#include "nought/zero/buckets.h"
#include "nought/zero/policy.h"

namespace nought {

class Residency {
 public:
  /// policy: that of segments which several ranks share out. dtype: that of parameters without one of their own.
  /// bucket: elements that one collective of an exchange takes; 0: those of one segment.
  Residency(const Context& context, const Mesh& mesh, Policy policy, DType dtype, int64_t bucket,
            const std::vector<std::unique_ptr<Unit>>& units);

  /// Makes the Unit whole and keeps it so until release(); leases nest.
  void lease(size_t unit);
  void release(size_t unit);
  /// Starts the gather of a Unit that will be leased soon; nothing if it is whole or on its way.
  void prefetch(size_t unit);

  /// The whole flat buffer (padded); Error if the Unit is not leased.
  Tensor whole(SegmentIndex at) const;
  /// This rank's interval of the segment: what the optimizer writes and checkpoints read. Waits for gathers of it.
  Tensor owned(SegmentIndex at) const;
  /// Everything that this rank stores permanently: the owned interval when sharded, else the whole buffer.
  Tensor stored(SegmentIndex at) const { return buffers(at).stored; }
  /// The elements of the segment that are stored.
  Interval kept(SegmentIndex at) const;

  /// After the owners updated their intervals of whole buffers: all-gathers them. Each Unit waits at its next lease.
  void exchange_updates();
  /// Gives back what was prefetched and is not leased: an update makes it old. After settle().
  void drop_prefetched();
  /// Waits for everything in flight.
  void settle();

  const Partition& partition(SegmentIndex at) const { return buffers(at).partition; }
  /// The ranks that share out the states of a segment.
  Communicator& ranks(SegmentIndex at) const { return *buffers(at).ranks; }
  /// What these ranks shard.
  Policy policy(SegmentIndex at) const { return buffers(at).policy; }
  /// True if the parameters of a segment are.
  bool sharded() const { return sharded_; }

 private:
  /// The buffers of one segment.
  struct Buffers {
    Communicator* ranks = nullptr;
    Policy policy;
    Partition partition;
    DType dtype = DType::f32;
    Tensor stored;    // the shard, or the whole
    Tensor gathered;  // the whole, while leased or on its way
    Tensor of_hosts;  // while it is on its way in two levels: the shards of the ranks with this place on their hosts
    std::optional<Mesh::OverHosts> over_hosts;
    Event arrival;
  };
  struct State {
    std::string name;
    std::vector<Buffers> segments;  // one for each segment
    int leases = 0;
  };
  struct Exchange {
    Event event;
    const Bucket* bucket;
    Tensor packed;
  };
  const Buffers& buffers(SegmentIndex at) const { return states_[at.unit].segments[at.segment]; }
  Buffers& buffers(SegmentIndex at) { return states_[at.unit].segments[at.segment]; }
  /// Starts the gather of a sharded segment.
  void gather(Buffers& held) const;
  void exchange(const Bucket& bucket);
  void land_oldest();
  /// Returns when the Unit's stored parameters are those of the last exchange.
  void arrive(size_t unit);

  Context context_;
  Mesh mesh_;
  DType dtype_;
  bool sharded_ = false;
  std::vector<State> states_;          // one for each Unit
  std::vector<SegmentIndex> trained_;  // what is exchanged; the buckets' members are places in it
  std::vector<Bucket> buckets_;
  std::deque<Exchange> exchanges_;  // under way, of buckets with several segments
};

}  // namespace nought
