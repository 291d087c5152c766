// ShardedOptimizer: any optimizer over the intervals that this rank updates, with fp32 master weights where the
// parameters are 16-bit, or without them. It knows trained segments alone. Their masters and states are in a
// StateTable.
//
// With optimizer sharding a rank updates what it owns, and the parameters are exchanged afterwards; without, every rank
// updates everything. An element's update is the same arithmetic either way: parameters are cut at the borders of all
// ranks' shards whatever the stage, sums over a parameter add the shards' sums in rank order, and a matrix that Muon
// orthogonalises is computed by one rank, for all.
//
// Updates that are not made at once are those of its UpdateLane: overlapped with the backward pass, one step late, or
// by a server. Lamb and Muon (DirectedUpdate) and 1-bit optimizers (CompressedUpdate) have updates of their own.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "nought/comm/mesh.h"
#include "nought/optim/optimizer.h"
#include "nought/zero/compressed_update.h"
#include "nought/zero/directed_update.h"
#include "nought/zero/kept_states.h"
#include "nought/zero/rank_local_tensor.h"
#include "nought/zero/reducer.h"
#include "nought/zero/residency.h"
#include "nought/zero/state.h"
#include "nought/zero/state_table.h"
#include "nought/zero/update_lane.h"

namespace nought {

class ShardedOptimizer {
 public:
  ShardedOptimizer(const Context& context, const Mesh& mesh, DType dtype, OptimizerOptions options,
                   const std::vector<std::unique_ptr<Unit>>& units, Residency& residency, Reducer& reducer,
                   const OffloadOptions& offload = {}, int virtual_ranks = 0);
  ShardedOptimizer(const ShardedOptimizer&) = delete;  // its parts refer to it
  ShardedOptimizer& operator=(const ShardedOptimizer&) = delete;

  /// By Unit, this rank's sum of squares of the summed gradients that it owns and counts for all, f64 [units]. The same
  /// values at every stage; with virtual ranks for each of them, f64 [units * virtual ranks]. Where
  /// wants_local_gradients(): CompressedUpdate::own_squares().
  Tensor sums_of_squares() const;
  /// One update with the reduced gradients times gradient_scale. Collective. The caller exchanges the parameters
  /// afterwards.
  void update(double lr, double gradient_scale);

  /// True if the next update reads each rank's own gradients, which nobody has summed: ranks send one bit each instead,
  /// or nothing (CompressedUpdate).
  bool wants_local_gradients() const { return compressed_ && compressed_->reads_local_gradients(updates_ + 1); }
  /// What this rank has for itself: errors of compression, and weights while each rank updates alone.
  std::vector<RankLocalTensor> rank_local_tensors() const;
  /// True if a run cannot go on without these.
  bool needs_rank_local_tensors() const { return compressed_ && compressed_->needs_rank_local_tensors(updates_); }

  /// The next update() comes with these numbers, whatever the gradients are: from now on it may be made, segment by
  /// segment, before that. With offload.undo this is a guess, and update() may come with others. Nothing unless
  /// offload.early is given.
  void begin_early(const EarlyUpdate& update) {
    abandon_early();
    if (!delays()) lane_.begin_early(update, updates_ + 1);
  }
  /// Waits for what was begun, and begins no more. With offload.undo all is as it was before; else true if parameters
  /// may have changed.
  bool abandon_early() { return lane_.abandon_early(); }

  /// True if the next update is put off: offload.delay_after is given, and so many were made.
  bool delays() const { return table_.offload().delay_after && updates_ >= *table_.offload().delay_after; }
  /// Sets the reduced gradients aside for an update that start() begins; counts it as made. None may be pending.
  void delay(double lr, double gradient_scale) { lane_.delay(lr, gradient_scale), ++updates_; }
  /// Begins the pending update, on a thread of its own; nothing without one.
  void start() { lane_.start(updates_); }
  /// Waits for the pending update, which begins now if start() was not called, and takes its parameters over (the
  /// caller exchanges them). False without one.
  bool complete() { return lane_.complete(updates_); }
  /// The update that is put off. Between steps, its gradients are in owned() and values().
  const std::optional<PendingUpdate>& pending() const { return lane_.pending(); }
  /// After load(): the update that was pending, which is one of its `updates`, with the gradients of `source`.
  void load_pending(const StateSource& source, const PendingUpdate& pending) {
    require(updates_ > 0, "a pending update is loaded where none can be");
    lane_.load_pending(source, pending);
  }

  /// Where the masters and states are, what reads and changes them between updates, and where updates that are not made
  /// at once are made.
  StateTable& states() { return table_; }
  const StateTable& states() const { return table_; }
  const KeptStates& kept() const { return kept_; }
  UpdateLane& lane() { return lane_; }
  /// The next update of a server (UpdateLane::begin_serving).
  void update_asynchronously(double lr, double gradient_scale) {
    lane_.update_asynchronously(lr, gradient_scale, ++updates_);
  }

  /// Masters and parameters become keeps * themselves + (1 - keeps) * `scoped`, f32 over scope(at) (the caller
  /// exchanges them). The states stay.
  void mix_masters(SegmentIndex at, const Tensor& scoped, double keeps) {
    require(!pending(), "masters are changed while an update of them is pending");
    kept_.mix_masters(at, scoped, keeps);
  }

  /// Fills all states, and writes the parameters from the masters (the caller exchanges them). Nothing is pending.
  void load(const StateSource& source, int64_t updates) {
    updates_ = updates;
    table_.set_number(updates);
    lane_.forget_pending();
    kept_.load(source);
  }
  /// How many updates were made; one that is pending is among them.
  int64_t updates() const { return updates_; }

  using OwnedState = KeptStates::OwnedState;
  /// All states of the elements that this rank owns and counts for all: what a checkpoint writes.
  std::vector<OwnedState> owned() const { return kept_.owned(/*gradients=*/pending().has_value()); }
  /// Their values ([piece] f32); 8-bit states are decoded, which loses nothing (see Quantize8).
  Tensor values(const OwnedState& state) const {
    if (state.kind == StateKind::gradient) lane_.await_gradients();
    return kept_.values(state);
  }
  /// Calls f(parameter, kind, tensor) with each tensor that this rank keeps of a state of the elements that it updates,
  /// as it is kept: codes and their scales are two. A master that is the parameter itself is left out.
  template <class F>
  void for_each_kept(F&& f) const {
    for (const SegmentStates& state : table_.segments())
      table_.walk(
          state, {.writes = 0}, [](const TileView&) {},
          [&](const TileView& tile) {
            for (const TrainedPiece& piece : tile.of->pieces) {
              if (tile.of->keeps_masters) f(*piece.parameter, StateKind::master, tile.master(piece));
              for (const PieceState& each : piece.states) {
                f(*piece.parameter, each.kind, tile.values(each));
                if (!each.in_scales.empty()) f(*piece.parameter, each.kind, tile.scales(each));
              }
            }
          });
  }

  /// What the updates, loads and checkpoints so far have moved, but for what Residency moves.
  StateTraffic traffic() const { return table_.traffic(); }
  /// How long that took.
  StateTimes times() const { return table_.times() + StateTimes{.waited = lane_.waited()}; }

 private:
  Tensor squares_of_virtual_ranks() const;
  /// Updates the piece; if its rule gives a direction first, writes that.
  void update_piece(const TileView& tile, const TrainedPiece& piece, double lr, double gradient_scale,
                    const Tensor& directions) const;
  UpdateSpan span_of(const TileView& tile, const TrainedPiece& piece, double lr, double gradient_scale) const;

  Context context_;
  Mesh mesh_;
  OptimizerOptions options_;
  const std::vector<std::unique_ptr<Unit>>& units_;
  int virtual_ranks_;
  Reducer& reducer_;
  StateTable table_;
  KeptStates kept_;
  DirectedUpdate directed_;
  std::unique_ptr<CompressedUpdate> compressed_;  // null unless it is a 1-bit optimizer
  int64_t updates_ = 0;                           // that were made
  UpdateLane lane_;                               // the last member: its thread uses the others
};

}  // namespace nought
