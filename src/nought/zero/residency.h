// Residency: where the parameters of each Unit are, and when they are whole.
//
// Without parameter sharding the flat buffers of a Unit are always whole. With it, each rank keeps its shard of every
// segment, trained or not; a lease gathers the Unit into buffers of its own, and the last release gives them back. A
// prefetch starts the gather before the lease needs it. Only trained segments are exchanged after an update; those that
// share a bucket are gathered through it, in one collective. Experts' segments are shared out over ranks of their own:
// those that hold the same experts.
//
// What a rank stores may be offloaded (ParameterStore), the whole of a Unit too where one rank has
// all of it. Then a lease brings it to the device first. Units that come later are fetched before they are gathered.
//
// Where the mesh knows the hosts, a lease gathers in two levels (arXiv 2205.00119, section 3.2): first the ranks that
// have one place on their hosts gather their shards, and then those of a host gather what these have, one host's shards
// after the other's, so that each comes to lie where it belongs. ShardGather does it, as values or as codes.
//
// With a secondary group (Mesh::secondary()) its ranks keep between them what the first gather after an update brought.
// Later gathers ask them alone, until what is kept is written again (arXiv 2306.10209, section 3.2).
//
// What the last release leaves whole (LiveUnits says when) is what the next lease finds.
//
// It has 52 members because eleven of them answer what is known of a segment; what moves bytes is in ParameterStore,
// ShardGather and the buckets.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "nought/comm/mesh.h"
#include "nought/zero/buckets.h"
#include "nought/zero/parameter_store.h"
#include "nought/zero/policy.h"
#include "nought/zero/shard_wire.h"

namespace nought {

class Residency {
 public:
  /// policy: that of segments which several ranks share out. dtype: that of parameters without one of their own.
  /// bucket: elements that one collective of an exchange takes; 0: those of one segment. offload: another tier than the
  /// device takes parameter sharding wherever several ranks share a segment; ConfigError without. weight_bits: those of
  /// WireOptions.
  Residency(const Context& context, const Mesh& mesh, Policy policy, DType dtype, int64_t bucket,
            const std::vector<std::unique_ptr<Unit>>& units, const ParameterOffload& offload = {}, int weight_bits = 0,
            int virtual_ranks = 0);

  /// Makes the Unit whole and keeps it so until release(); leases nest.
  void lease(size_t unit);
  /// A lease with the values as they are stored, for files, where lease() brings their quantized values.
  void lease_exact(size_t unit);
  /// stays: with the last lease the Unit stays whole for the next one, but for stored values where passes bring
  /// quantized ones.
  void release(size_t unit, bool stays = false);
  /// Gives back what stays.
  void drop_live();
  /// How many elements of the Unit a lease brings, padding included.
  int64_t brought(size_t unit) const;
  /// Starts the gather of a Unit that will be leased soon; nothing if it is whole or on its way.
  void prefetch(size_t unit);
  /// Starts bringing what this rank stores of a Unit from its offload tier, for a later prefetch(). False if that would
  /// take more buffers than there are, or if nothing is offloaded.
  bool fetch_ahead(size_t unit);

  /// The whole flat buffer (padded); Error if the Unit is not leased.
  Tensor whole(SegmentIndex at) const;
  /// The elements of the segment that this rank stores permanently: what it owns when sharded, else all.
  Interval kept(SegmentIndex at) const;
  /// Elements of the segment that are kept; on the device, where kernels read them. Waits for gathers of them.
  Tensor read(SegmentIndex at, Interval elements) const;
  /// This rank's interval of the segment, to be read.
  Tensor owned(SegmentIndex at) const { return read(at, partition(at).owned(ranks(at).rank())); }

  /// Begins to write what is kept of a segment, in a tensor where the update is made: Pool::device, or Pool::host where
  /// the host has no access to the device, which takes offloading. reads: it has the present values. Calls nest.
  void begin_update(SegmentIndex at, Pool where, bool reads);
  /// The tensor over kept(); undefined outside of an update if it is offloaded.
  Tensor updating(SegmentIndex at) const;
  /// Everything is written: it goes back to its offload tier, and the next lease waits for it.
  void end_update(SegmentIndex at);
  /// True if what is kept of the segment is offloaded.
  bool elsewhere(SegmentIndex at) const { return buffers(at).slot.has_value(); }

  /// After the owners updated their intervals of whole buffers: all-gathers them. Each Unit waits at its next lease.
  void exchange_updates();
  /// Gives back what is whole, or was prefetched, and is not leased: an update makes it old. After settle().
  void drop_prefetched();
  /// Waits for everything in flight.
  void settle();

  const Partition& partition(SegmentIndex at) const { return buffers(at).partition; }
  /// The ranks that share out the states of a segment.
  Communicator& ranks(SegmentIndex at) const { return *buffers(at).ranks; }
  /// What these ranks shard.
  Policy policy(SegmentIndex at) const { return buffers(at).policy; }
  DType dtype(SegmentIndex at) const { return buffers(at).dtype; }
  /// True if the parameters of a segment are.
  bool sharded() const { return sharded_; }
  /// True if leases bring parameters: from other ranks, or from an offload tier.
  bool moves() const { return sharded_ || store_; }
  /// What left the offload tier and came back so far.
  StateTraffic traffic() const { return store_ ? store_->traffic() : StateTraffic{}; }
  StateTimes times() const { return store_ ? store_->times() : StateTimes{}; }
  /// A line for the user on where parameters are, if that is a file; else "".
  std::string note() const { return store_ ? store_->note() : ""; }

 private:
  /// The buffers of one segment.
  struct Buffers {
    Communicator* ranks = nullptr;
    Policy policy;
    Partition partition;
    DType dtype = DType::f32;
    std::optional<size_t> slot;  // its number in the store
    Tensor stored;               // without: the shard, or the whole
    Tensor fetched;              // with: the shard on the device, until it is gathered
    Event fetch;
    Tensor gathered;  // the whole, while leased or on its way
    WireRanks wire;
    ShardGather gather;       // while it is on its way
    bool codes = false;       // passes gather it quantized
    Tensor secondary;         // this rank's share of what the secondary group keeps
    bool kept_whole = false;  // these shares are what a gather would bring
    Event arrival;
  };
  struct State {
    std::string name;
    std::vector<Buffers> segments;  // one for each segment
    int leases = 0;
    bool exact = false;  // it is leased for its stored values
    bool stays = false;  // it is whole without a lease
  };
  struct Exchange {
    Event event;
    const Bucket* bucket;
    Tensor packed;
  };
  /// Whether a lease brings the segment.
  static bool comes(const Buffers& held) { return held.policy.shard_parameters || held.slot; }
  static Interval kept_of(const Buffers& held) {
    return held.policy.shard_parameters ? held.partition.owned(held.ranks->rank())
                                        : Interval{0, held.partition.padded()};
  }
  static int64_t kept_elements(const Buffers& held) { return kept_of(held).size(); }
  /// How many buffers of the options a Unit fills while it is on its way.
  int64_t buffers_of(const State& state) const;
  void fetch(size_t unit);
  /// Gives back what was brought of a Unit that is not leased.
  static void drop(State& state);
  const Buffers& buffers(SegmentIndex at) const { return states_[at.unit].segments[at.segment]; }
  Buffers& buffers(SegmentIndex at) { return states_[at.unit].segments[at.segment]; }
  /// Starts the gather of a sharded segment. exact: of stored values.
  void gather(Buffers& held, bool exact) const;
  /// Makes room for the secondary group's share of a segment.
  void make_secondary(const Segment& segment, Buffers& held) const;
  void exchange(const Bucket& bucket);
  void complete_oldest();
  /// Returns when the Unit's stored parameters are those of the last exchange.
  void arrive(size_t unit);

  Context context_;
  Mesh mesh_;
  DType dtype_;
  int weight_bits_;
  ParameterOffload offload_;
  std::unique_ptr<ParameterStore> store_;  // of all that is offloaded
  bool sharded_ = false;
  std::vector<State> states_;          // one for each Unit
  std::vector<SegmentIndex> trained_;  // what is exchanged; the buckets' members are places in it
  std::vector<Bucket> buckets_;
  std::deque<Exchange> exchanges_;  // under way, of buckets with several segments
};

}  // namespace nought
