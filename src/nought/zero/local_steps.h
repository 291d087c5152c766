// LocalSteps: workers that make steps of their own and synchronize now and then (DiLoCo, arXiv 2311.08105; in
// fragments, arXiv 2501.18512).
//
// Where workers synchronize they agree on the anchor: theta_prev, what all of them went on from last. delta = mean over
// the workers of (anchor - their own weights), added in fp32 in their order; v = momentum v + delta; anchor -= lr
// (delta + momentum v), with Nesterov's momentum. Then all go on from the anchor, bit for bit the same. Inner optimizer
// states stay where they are. Anchor and v are cut over the ranks of a worker as ZeRO cuts optimizer states, at every
// stage.
//
// The Units are cut into fragments, which synchronize in turn. A fragment may begin to synchronize some steps before
// its workers go on from the result: then deltas travel overlapped with these steps, and what a worker has learned
// meanwhile is mixed in by `keeps_local`.
#pragma once

#include <optional>
#include <vector>

#include "nought/comm/workers.h"
#include "nought/zero/local_steps_options.h"
#include "nought/zero/sharded_model.h"

namespace nought {

class LocalSteps {
 public:
  /// The model is on workers.mesh(). ConfigError if there are more fragments than Units, or no fp32 masters.
  LocalSteps(ShardedModel& model, const Workers& workers, const LocalStepsOptions& options);

  /// All workers begin from the model's present weights, which are the same.
  void begin();
  /// The anchors and momenta of a run that goes on after `step` steps. `exact`: each worker has its own weights, and
  /// what was on its way is in the source; else the model has been loaded with the anchors.
  void load(const StateSource& source, int64_t step, bool exact);

  /// All workers have made `step` steps: begins and ends the synchronizations that are due. All ranks of all workers
  /// call it.
  void after_step(int64_t step);
  /// Ends a run after `step` steps: every fragment that has not synchronized after just these synchronizes now, and
  /// keeps nothing.
  void finish(int64_t step);

  /// The fragment that is on its way after `step` steps.
  std::optional<size_t> on_its_way(int64_t step) const;
  /// Stretches of anchors, momenta and deltas that this rank writes to a checkpoint: the first worker's ranks do.
  struct Owned {
    const Parameter* parameter;
    StateKind kind;
    Interval in_parameter;
    Tensor values;  // f32
  };
  std::vector<Owned> owned();

  const LocalStepsOptions& options() const { return options_; }
  const Workers& workers() const { return workers_; }

 private:
  struct Segment {
    SegmentIndex at;
    size_t fragment = 0;
    Tensor anchor = {}, momentum = {};  // f32 [shard]; no momentum where it is 0
    Tensor delta = {};                  // while it is on its way, and until it is used
    Event summed = {};
  };
  template <class F>
  void for_each_piece(const Segment& segment, const F& f) const;
  void read_anchor(Segment& segment) const;
  void start(Segment& segment) const;
  /// The outer step, when its delta is there.
  void step_outside(Segment& segment) const;
  /// The model's masters become the anchors, but for what is kept of them.
  void go_on(size_t first, size_t last, double keeps);
  void synchronize(size_t fragment, double keeps);
  std::pair<size_t, size_t> segments_of_fragment(size_t fragment) const;
  size_t fragment_at(int64_t step) const;

  ShardedModel& model_;
  const Workers& workers_;
  LocalStepsOptions options_;
  std::vector<Segment> segments_;           // by Unit, so that those of a fragment are neighbours
  std::vector<int64_t> last_synchronized_;  // by fragment: it last synchronized after so many steps
};

}  // namespace nought
