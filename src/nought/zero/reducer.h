// Reducer: where gradients are written, and how they become the sum over all ranks. It knows trained segments alone.
//
// Without gradient sharding every segment has one whole buffer for the accumulation, reduced once, when its Unit's last
// backward of the step ends. With it, a segment's whole gradients are a micro-batch's own: they live only during its
// Unit's own backward and while the reduce-scatter of it is under way; what stays is the shard. All policies reduce the
// same intervals in the same order of ranks. Experts' gradients are added over the ranks that hold the same experts.
//
// The sums of shards may be kept on the host beside a device, or in a file, where they flow as Units finish
// (GradientStore). In a file are then also the whole gradients of segments that one rank has for itself: those come
// back for each micro-batch, which adds to them.
//
// With virtual ranks each micro-batch has gradients of its own under every policy, and they meet in a tree (TreeSums):
// where they are sharded behind the reductions, else before the one of the step.
//
// How gradients travel: Reductions.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "nought/comm/mesh.h"
#include "nought/zero/gradient_store.h"
#include "nought/zero/rank_local_tensor.h"
#include "nought/zero/reductions.h"
#include "nought/zero/segment_gradients.h"
#include "nought/zero/sharding_options.h"

namespace nought {

class Reducer {
 public:
  /// The options of gradients count, and the policy of segments which several ranks share out. Gradients are kept
  /// where offload_optimizer.gradient_tier() says, but those that ranks of other stages or replicas add theirs to stay
  /// on the device.
  Reducer(const Context& context, const Mesh& mesh, const ShardingOptions& options,
          const std::vector<std::unique_ptr<Unit>>& units);
  Reducer(const Reducer&) = delete;  // its reductions refer to it
  Reducer& operator=(const Reducer&) = delete;

  /// How many segments are trained, and how many collectives take all their gradients.
  size_t segments() const { return segments_.size(); }
  size_t buckets() const { return reductions_->buckets(); }

  /// keeps: from the next micro-batch on gradients stay each rank's own, whole: nothing is reduced, and who asked for
  /// it adds them up in a way of its own. Error where gradients are sharded.
  void keep_local(bool keeps);

  class MicroBatch;
  /// Begins a micro-batch. Without gradient sharding its gradients are added to those of the others of the step, and
  /// the Units are reduced when they are final for the `last` one: the one whose gradients are final last.
  MicroBatch begin_micro_batch(bool last);
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
  const Partition& partition(SegmentIndex at) const { return segments_[place_of(at)].partition; }
  /// Null if all gradients stay on the device.
  GradientStore* store() const { return store_.get(); }
  /// The segment's number there, whose room has what reduced() has; nothing if its gradients are on the device.
  std::optional<size_t> stored(SegmentIndex at) const { return segments_[place_of(at)].stored; }
  /// Where each rank keeps its own: what this rank has formed, whole. Clears what the step has left out.
  Tensor own(SegmentIndex at);
  /// Ends the step: the next micro-batch starts from nothing.
  void reset();
  /// What codes of gradients have lost on this rank so far (WireOptions::feedback), which checkpoints keep.
  std::vector<RankLocalTensor> errors() const { return reductions_->errors(); }
  /// The gradients are read until the event: what writes them next waits for it.
  void keep_until(const Event& read) { read_ = read; }

 private:
  void add_segment(SegmentIndex at, const ShardingOptions& options);
  /// How many sums the tree of a segment keeps: none with one micro-batch in a step.
  int tree_levels(const ShardingOptions& options) const;
  void add_tree(SegmentGradients& to, const ShardingOptions& options);
  /// Its place in segments_; Error if it is not trained.
  size_t place_of(SegmentIndex at) const;
  WholeGradients& whole_of(MicroBatch& of, size_t place);
  /// Whether each micro-batch has whole gradients of its own of the segment.
  static bool is_of_micro_batch(const SegmentGradients& state) { return state.policy.shard_gradients || state.tree; }
  Tensor early_part(const SegmentGradients& state, WholeGradients& whole, Interval range, bool accumulate);
  /// Makes the whole buffer unless there is one, with what came early.
  void make_whole(SegmentGradients& state, WholeGradients& whole);
  /// Room for the whole gradients of a segment that are in a file, with what is there; begins to bring those that come
  /// next in a walk back.
  Tensor take_up(SegmentGradients& state);
  /// Sends them back. last: of the step's micro-batches.
  void put_back(SegmentGradients& state, bool last);
  /// The segment's gradients, which are in a file, are final for the micro-batch.
  void finish_swapped(MicroBatch& of, size_t place);
  /// last: of the step's micro-batches.
  void finish(SegmentGradients& state, WholeGradients& whole, bool last);
  void begin_reduction(SegmentGradients& state, WholeGradients& whole, bool last);
  /// The last micro-batch has left the segment out, whose gradients are not sharded.
  void finish_left_out(SegmentGradients& state);
  /// See keep_until().
  void await_readers();
  void clear_unwritten(SegmentGradients& state, WholeGradients& whole);
  /// Adds the parts that ranks along other axes have formed, if these are parts.
  void add_parts(const SegmentGradients& state, const WholeGradients& whole);
  bool in_file(const SegmentGradients& state) const { return state.stored && store_->in_file(); }

  Context context_;
  Mesh mesh_;
  const std::vector<std::unique_ptr<Unit>>& units_;
  DType dtype_;
  bool overlap_;
  bool shards_ = false;  // the gradients of some segment are sharded
  bool has_trees_ = false;
  int64_t begun_ = 0;  // micro-batches of the step
  bool keeps_local_ = false;
  std::vector<SegmentGradients> segments_;  // those that are trained
  Event read_;
  std::unique_ptr<GradientStore> store_;  // null if all are kept on the device
  std::optional<Reductions> reductions_;  // always there; made when the segments are
};

/// What the Reducer keeps of one micro-batch: whether it is the last, and with gradient sharding the gradients that are
/// not final yet. Those that the forward pass forms wait here for the Unit's backward pass.
class Reducer::MicroBatch {
  friend class Reducer;
  bool last_ = true;
  std::vector<WholeGradients> wholes_;  // with gradient sharding or trees, one for each trained segment
  std::vector<bool> begun_;             // it adds to the whole gradients of these segments, which are in a file
};

}  // namespace nought
