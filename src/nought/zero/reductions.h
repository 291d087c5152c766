// Reductions: how gradients that are final become the sum over all ranks. It has the buckets in which they travel, what
// is under way, and what quantized gradients have lost.
//
// Segments that share a bucket are copied into it when they are final, and are reduced when the last of them is.
// Replicas add in a second hop what the ranks of each have summed: every rank its shard, once in a step, when the last
// micro-batch has been added to it (arXiv 2205.00119, section 3.3).
//
// Gradients accumulate in one dtype and may travel in another: then they are rounded to it before they are sent, the
// sum is taken in fp32 and rounded once, and what arrives is converted back. With gradient sharding they may travel as
// codes of few bits instead (ShardReduction). Codes share scales with their neighbours, so that what all ranks along an
// axis hold alike travels apart from what that axis cuts: else the copies would be rounded by different scales, and
// drift apart.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "nought/comm/mesh.h"
#include "nought/zero/buckets.h"
#include "nought/zero/gradient_store.h"
#include "nought/zero/rank_local_tensor.h"
#include "nought/zero/segment_gradients.h"
#include "nought/zero/shard_wire.h"
#include "nought/zero/sharding_options.h"

namespace nought {

class Reductions {
 public:
  /// segments: those of the Reducer, all of them; store: null if all gradients stay on the device. Both stay.
  Reductions(const Context& context, const Mesh& mesh, const ShardingOptions& options,
             std::vector<SegmentGradients>& segments, GradientStore* store);

  /// How many collectives take all gradients.
  size_t buckets() const { return buckets_.size(); }

  /// Begins the reduction of a segment's whole gradients, or puts them into its bucket. last: those of the step's last
  /// micro-batch are among them.
  void begin(SegmentGradients& of, WholeGradients& whole, bool last);
  /// Begins that of every bucket which waits for others of its segments.
  void send_filling();
  /// Begins the second hop of a shard that no reduction of the last micro-batch has brought.
  void cross(const SegmentGradients& of) { cross(std::vector<size_t>{place_of(of)}); }
  /// Waits until one more segment may have whole gradients.
  void make_room();
  /// Waits for all that has begun.
  void complete();
  /// True if the sum is there: what the compute stream is given from now on comes after it.
  bool is_final(SegmentGradients& of);
  /// What codes of gradients have lost on this rank so far (WireOptions::feedback), which checkpoints keep.
  std::vector<RankLocalTensor> errors() const;

 private:
  /// What a reduction leaves in `from` is added to `into`, or converted to it.
  struct Destination {
    Tensor from, into;
    bool add = false;
    std::optional<size_t> stored = {};  // its number in the store, in place of `into`
    bool last = false;                  // nothing follows in this step
    TreeSums* tree = nullptr;           // adds it in place of all these
    int64_t micro_batch = 0;
  };
  /// Where a micro-batch's shard of the gradients goes; makes it begun.
  Destination shard_destination(SegmentGradients& of, int64_t micro_batch, const Tensor& from, bool last) const;
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
    std::vector<bool> present;  // for each place in the bucket
    int64_t micro_batch = 0;
    std::vector<size_t> last = {};  // see Flight
  };
  size_t place_of(const SegmentGradients& of) const { return static_cast<size_t>(&of - segments_.data()); }
  void reduce_whole(SegmentGradients& of);
  void reduce_to_shard(SegmentGradients& of, WholeGradients& whole, bool last);
  void pack(SegmentGradients& of, WholeGradients& whole, bool last);
  void send_bucket(Filling filling);
  /// Sends the bucket of the lane that was being filled, if there is one.
  void send_filling(size_t lane);
  /// The whole gradients as they travel: themselves, or rounded to the wire's dtype.
  Tensor to_wire(const Tensor& whole) const;
  /// Whether a reduction to shards goes quantized.
  bool is_quantized(const SegmentGradients& of) const { return codes_.gradient_bits > 0 && of.policy.shard_gradients; }
  /// Starts the reduction of what the flight has to send, a bucket's whole, to this rank's part of the sum.
  void begin_reduction(Flight& flight, const SegmentGradients& of, const Tensor& sum);
  WireRanks wire_ranks(const Bucket& bucket) const;
  void make_errors();
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

  Context context_;
  Mesh mesh_;
  std::vector<SegmentGradients>& segments_;
  GradientStore* store_;
  DType dtype_, wire_;
  ReduceOp sum_;  // in the order of the ranks, or in a tree
  WireOptions codes_;
  std::vector<WireErrors> errors_;  // with feedback, one for each bucket
  std::vector<Bucket> buckets_;
  std::map<size_t, Filling> filling_;  // by lane
  std::deque<Flight> flights_;
  std::deque<Flight> crossings_;  // between replicas, of what travels in buffers of its own
};

}  // namespace nought
