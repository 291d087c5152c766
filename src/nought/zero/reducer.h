// Reducer: where gradients are written, and how they become the sum over all ranks. It knows trained segments alone.
//
// Without gradient sharding every segment has one whole buffer for the accumulation, reduced once, when its Unit's last
// backward of the step ends. With it, a segment's whole gradients are a micro-batch's own: they live only during its
// Unit's own backward and while the reduce-scatter of it is under way; what stays is the shard. All policies reduce the
// same intervals in the same order of ranks. Segments that share a bucket are copied into it when they are final, and
// are reduced when the last of them is. Experts' gradients are added over the ranks that hold the same experts.
//
// Replicas add in a second hop what the ranks of each have summed: every rank its shard, once in a step, when the last
// micro-batch has been added to it (arXiv 2205.00119, section 3.3).
//
// The sums of shards may be kept on the host beside a device, or in a file, where they flow as Units finish
// (GradientStore). In a file are then also the whole gradients of segments that one rank has for itself: those come
// back for each micro-batch, which adds to them.
//
// Gradients accumulate in one dtype and may travel in another: then they are rounded to it before they are sent, the
// sum is taken in fp32 and rounded once, and what arrives is converted back. With gradient sharding they may travel as
// codes of few bits instead (ShardReduction).
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "nought/comm/mesh.h"
#include "nought/zero/buckets.h"
#include "nought/zero/gradient_store.h"
#include "nought/zero/policy.h"
#include "nought/zero/rank_local_tensor.h"
#include "nought/zero/shard_wire.h"

namespace nought {

class Reducer {
 public:
  struct Options {
    Policy policy = {};        // that of segments which several ranks share out
    DType dtype = DType::f32;  // gradients accumulate in it
    DType wire = DType::f32;   // gradients travel in it
    bool overlap = true;       // reductions run overlapped with the backward pass
    int64_t bucket = 0;        // elements that one collective takes; 0: those of one segment
    /// Where shards of gradients are kept; the host: beside a device that is none. Those that ranks of other stages or
    /// replicas add theirs to stay on the device.
    OffloadTier tier = {};
    /// How gradients travel to shards; `wire` counts where they are not quantized.
    WireOptions codes = {};
  };
  Reducer(const Context& context, const Mesh& mesh, const Options& options,
          const std::vector<std::unique_ptr<Unit>>& units);

  /// How many segments are trained, and how many collectives take all their gradients.
  size_t segments() const { return states_.size(); }
  size_t buckets() const { return buckets_.size(); }

  /// keeps: from the next micro-batch on gradients stay each rank's own, whole: nothing is reduced, and who asked for
  /// it adds them up in a way of its own. Error where gradients are sharded.
  void keep_local(bool keeps);

  class MicroBatch;
  /// Begins a micro-batch. Without gradient sharding its gradients are added to those of the others of the step, and
  /// the Units are reduced when they are final for the `last` one: the one whose gradients are final last.
  MicroBatch begin_micro_batch(bool last) const;
  /// Where parameters [first, last] of a Unit, which are trained, write their gradient. early: long before those of the
  /// Unit's other parameters, so that with gradient sharding it gets room of its own and the whole buffer is made when
  /// the first of the others comes.
  GradSink sink(MicroBatch& of, size_t unit, size_t first, size_t last, bool early = false);
  /// The Unit's gradients are final for this micro-batch: reduces them if it is time.
  void finish(MicroBatch& of, size_t unit);

  /// With gradient sharding: reduces what the Unit's gradients are so far, and more is added before finish().
  void reduce_so_far(MicroBatch& of, size_t unit);

  /// After the last backward pass of the step: a Unit that it left out is reduced too, so that its sum is what earlier
  /// micro-batches wrote, or zero. Then settle(). All ranks call it together.
  void finish_step();
  /// Waits until every reduction that has begun is done.
  void settle();
  /// True if the segment's summed gradients of the step are there already: what the compute stream is given from now on
  /// comes after them. May be false for some that are.
  bool is_final(SegmentIndex at);
  /// This rank's interval of the summed gradients; after settle(). What is in a file is read.
  Tensor owned(SegmentIndex at) const;
  /// The summed gradients that the optimizer of this policy reads: the whole buffer at stage 0, else owned().
  Tensor reduced(SegmentIndex at) const;
  DType dtype() const { return dtype_; }
  /// Null if all gradients stay on the device.
  GradientStore* store() const { return store_.get(); }
  /// The segment's number there, whose room has what reduced() has; nothing if its gradients are on the device.
  std::optional<size_t> stored(SegmentIndex at) const { return states_[place_of(at)].stored; }
  /// Where each rank keeps its own: what this rank has formed, whole. Clears what the step has left out.
  Tensor own(SegmentIndex at);
  /// Ends the step: the next micro-batch starts from nothing.
  void reset();
  /// What codes of gradients have lost on this rank so far (WireOptions::feedback), which checkpoints keep.
  std::vector<RankLocalTensor> errors() const;
  /// The gradients are read until the event: what writes them next waits for it.
  void keep_until(const Event& read) { read_ = read; }

 private:
  /// The gradients of a whole segment while they are added up.
  struct Whole {
    Tensor values;
    std::vector<bool> written;  // for each parameter of the Unit: its gradient has begun
    struct Part {
      Interval range;
      Tensor values;
    };
    std::vector<Part> early = {};  // until there are `values`
  };
  struct State {
    SegmentIndex at;
    const Unit* unit = nullptr;
    Communicator* ranks = nullptr;  // that share it out
    Policy policy;
    Partition partition;
    std::vector<Interval> gaps;                         // no parameter fills them
    Whole whole;                                        // all micro-batches add to it; unused with gradient sharding
    Tensor shard;                                       // permanent, with gradient sharding, unless it is in a file
    bool shard_begun = false;                           // it has, or the file
    std::optional<size_t> stored = {};                  // its number in the store
    std::optional<GradientStore::Arrival> coming = {};  // its whole gradients, from there
    int open = 0;                                       // micro-batches that have begun to add to these
    bool finished = false;                              // the reduction of the step's last micro-batch has begun
    bool completed = false;                             // and what it brought is there
    bool in_place = false;                              // `reduction` tells when it is
    bool crossed = false;                               // the sum over the replicas of a sharded gradient has begun
    Event reduction;
    Event arrival;                 // on the host
    size_t bucket = 0, place = 0;  // the segment is buckets_[bucket].members()[place]
  };
  /// What a reduction leaves in `from` is added to `into`, or converted to it.
  struct Destination {
    Tensor from, into;
    bool add = false;
    std::optional<size_t> stored = {};  // its number in the store, in place of `into`
    bool last = false;                  // of the step
  };
  /// A reduction under way. It keeps what is sent until it is complete, so that what is alive depends on the program
  /// alone, never on the wire.
  struct Flight {
    const Communicator* ranks;
    Event event;
    Tensor sent;
    std::vector<Destination> destinations;  // none: the sum goes where it belongs
    std::vector<size_t> last = {};          // places of the shards that are then the sum of the step over this replica
    std::vector<size_t> final = {};         // places of the segments whose gradients of the step have then completed
    std::shared_ptr<ShardReduction> quantized = {};  // in place of an event
  };
  /// A bucket that some of its segments are in.
  struct Filling {
    size_t bucket = 0;
    Tensor packed;
    std::vector<bool> present;      // for each place in the bucket
    std::vector<size_t> last = {};  // see Flight
  };
  /// Its place in states_; Error if it is not trained.
  size_t place_of(SegmentIndex at) const;
  Whole& whole_of(MicroBatch& of, size_t place);
  Tensor early_part(const State& state, Whole& whole, Interval range, bool accumulate);
  /// Makes the whole buffer unless there is one, with what came early.
  void make_whole(State& state, Whole& whole);
  /// Room for the whole gradients of a segment that are in a file, with what is there; begins to bring those that come
  /// next in a walk back.
  Tensor take_up(State& state);
  /// Sends them back. last: of the step's micro-batches.
  void put_back(State& state, bool last);
  /// The segment's gradients, which are in a file, are final for the micro-batch.
  void finish_swapped(MicroBatch& of, size_t place);
  /// last: of the step's micro-batches.
  void finish(State& state, Whole& whole, bool last);
  /// See keep_until().
  void await_readers();
  void clear_unwritten(State& state, Whole& whole);
  /// Adds the parts that ranks along other axes have formed, if these are parts.
  void add_parts(const State& state, const Whole& whole);
  void reduce_whole(State& state);
  void reduce_to_shard(State& state, Whole& whole, bool last);
  void pack(State& state, Whole& whole, bool last);
  void send_bucket(Filling filling);
  /// Sends the bucket that these ranks were filling, if there is one.
  void send_filling(const Communicator& ranks);
  /// The whole gradients as they travel: themselves, or rounded to the wire's dtype.
  Tensor to_wire(const Tensor& whole) const;
  /// Whether a reduction to shards goes quantized.
  bool is_quantized(const State& state) const { return codes_.gradient_bits > 0 && state.policy.shard_gradients; }
  /// Starts the reduction of what the flight has to send, a bucket's whole, to this rank's part of the sum.
  void begin_reduction(Flight& flight, const State& state, const Tensor& sum);
  WireRanks wire_ranks(const Bucket& bucket) const;
  void make_errors();
  bool in_file(const State& state) const { return state.stored && store_->in_file(); }
  /// Its whole gradients are in a file.
  static bool swaps_whole(const State& state) { return state.stored && !state.policy.shard_gradients; }
  bool has_replicas() const { return mesh_.group(Group::replicas).size() > 1; }
  /// `sum`, which is that of this replica's ranks when `reduced` is done, becomes the one over all replicas.
  Event over_replicas(const Event& reduced, const Tensor& sum) const;
  /// over_replicas() for the shards at these places, which are complete.
  void cross(const std::vector<size_t>& places);
  void send(Flight flight);
  /// Waits for a flight, and takes what it brings.
  void complete(const Flight& flight);
  void complete_oldest();
  void complete_oldest_crossing();
  void complete_all();

  Context context_;
  Mesh mesh_;
  const std::vector<std::unique_ptr<Unit>>& units_;
  DType dtype_, wire_;
  WireOptions codes_;
  std::vector<WireErrors> errors_;  // with feedback, one for each bucket
  bool overlap_;
  bool shards_ = false;  // the gradients of some segment are sharded
  bool keeps_local_ = false;
  std::vector<Bucket> buckets_;
  std::map<const Communicator*, Filling> filling_;
  std::vector<State> states_;  // one for each trained segment
  Event read_;
  std::unique_ptr<GradientStore> store_;  // null if all are kept on the device
  std::deque<Flight> flights_;
  std::deque<Flight> crossings_;  // between replicas, of what travels in buffers of its own
};

/// What the Reducer keeps of one micro-batch: whether it is the last, and with gradient sharding the gradients that are
/// not final yet. Those that the forward pass forms wait here for the Unit's backward pass.
class Reducer::MicroBatch {
  friend class Reducer;
  bool last_ = true;
  std::vector<Whole> wholes_;  // with gradient sharding, one for each trained segment
  std::vector<bool> begun_;    // it adds to the whole gradients of these segments, which are in a file
};

}  // namespace nought
