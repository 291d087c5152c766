// ShardedOptimizer: any optimizer over the intervals that this rank updates, with fp32 master weights where the
// parameters are 16-bit, or without them. It knows trained segments alone.
//
// With optimizer sharding a rank updates what it owns, and the parameters are exchanged afterwards; without, every rank
// updates everything. An element's update is the same arithmetic either way: parameters are cut at the borders of all
// ranks' shards whatever the stage, sums over a parameter add the shards' sums in rank order, and a matrix that Muon
// orthogonalises is computed by one rank, for all.
//
// Masters and states may have another home than the device (OffloadOptions). Where the host can not touch the device,
// the update is then made by the host: gradients flow down and parameters up, tile by tile (arXiv 2101.06840). From a
// file one tile is read while another is updated and a third is written (arXiv 2104.07857).
//
// An update may be put off by one step: then a thread of its own computes it beside the next step's passes, from
// gradients that were set aside to parameters that nobody reads yet (delayed_update.cpp). Where states are offloaded,
// the same thread updates segments whose gradients are final while the backward pass goes on (early_update.cpp). It
// never talks to other ranks.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "nought/comm/mesh.h"
#include "nought/offload/state_traffic.h"
#include "nought/optim/optimizer.h"
#include "nought/zero/compressed_update.h"
#include "nought/zero/own_tensor.h"
#include "nought/zero/reducer.h"
#include "nought/zero/residency.h"
#include "nought/zero/segment_states.h"
#include "nought/zero/state.h"
#include "nought/zero/state_store.h"
#include "nought/zero/state_tiles.h"

namespace nought {

/// An update whose gradients are there, and which was not applied yet.
struct PendingUpdate {
  double lr = 0, gradient_scale = 1;
};

class ShardedOptimizer {
 public:
  ShardedOptimizer(const Context& context, const Mesh& mesh, DType dtype, OptimizerOptions options,
                   const std::vector<std::unique_ptr<Unit>>& units, Residency& residency, Reducer& reducer,
                   const OffloadOptions& offload = {});

  /// By Unit, this rank's sum of squares of the summed gradients that it owns and counts for all, f64 [units]. The same
  /// values at every stage.
  Tensor owned_sums_of_squares();
  /// One update with the reduced gradients times gradient_scale. Collective. The caller exchanges the parameters
  /// afterwards.
  void update(double lr, double gradient_scale);

  /// True if the next update reads each rank's own gradients, which nobody has summed: ranks send signs instead, or
  /// nothing (CompressedUpdate).
  bool wants_own_gradients() const { return compressed_ && compressed_->reads_own_gradients(updates_ + 1); }
  Tensor own_sums_of_squares() const { return compressed_->own_sums_of_squares(); }
  /// What this rank has for itself: errors of compression, and weights while each rank updates alone.
  std::vector<OwnTensor> own_tensors() const;
  /// True if a run cannot go on without these.
  bool needs_own_tensors() const { return compressed_ && compressed_->needs_own_tensors(updates_); }

  /// The next update() comes with these numbers, whatever the gradients are: from now on it may be made, segment by
  /// segment, before that. Nothing unless offload.early is given and states are offloaded.
  void begin_early(double lr, double gradient_scale);
  /// Begins to update the segments whose gradients have become final, on a thread of its own; nothing without
  /// begin_early().
  void update_early();
  /// Waits for what was begun, and begins no more. True if parameters may have changed.
  bool abandon_early();

  /// True if the next update is put off: offload.delay_after is given, and so many were made.
  bool delays() const { return offload_.delay_after && updates_ >= *offload_.delay_after; }
  /// Sets the reduced gradients aside for an update that start() begins; counts it as made. None may be pending.
  void delay(double lr, double gradient_scale);
  /// Begins the pending update, on a thread of its own; nothing without one.
  void start();
  /// Waits for the pending update, which begins now if start() was not called, and takes its parameters over (the
  /// caller exchanges them). False without one.
  bool land();
  /// The update that is put off. Between steps, its gradients are in owned() and values().
  const std::optional<PendingUpdate>& pending() const { return pending_; }
  /// After load(): the update that was pending, which is one of its `updates`, with the gradients of `source`.
  void load_pending(const StateSource& source, const PendingUpdate& pending);

  /// Servers (zero/rotating_servers.h): from now on updates are made on the thread of submit_beside(), of what is in
  /// held_gradients(), [scope], to served_parameters().
  void begin_serving();
  void end_serving();
  Event submit_beside(std::function<void()> work);
  const Context& beside() const { return worker_context_; }
  Tensor held_gradients(SegmentIndex at) const;
  Tensor served_parameters(SegmentIndex at) const;
  /// As owned_sums_of_squares(), of what is held, into f64 [units]; `room`: f64 [1].
  void sum_held_squares(const Tensor& sums, const Tensor& room) const;
  void update_served(double lr, double gradient_scale);

  /// The masters in fp32: reads those that this rank owns of a segment, [shard], where parameters lie. Nothing is
  /// pending.
  void read_masters(SegmentIndex at, const Tensor& owned) const;
  /// Masters and parameters become keeps * themselves + (1 - keeps) * `scoped`, f32 over scope(at) (the caller
  /// exchanges them). The states stay.
  void mix_masters(SegmentIndex at, const Tensor& scoped, double keeps);

  /// Fills all states, and writes the parameters from the masters (the caller exchanges them). Nothing is pending.
  void load(const StateSource& source, int64_t updates);
  /// How many updates were made; one that is pending is among them.
  int64_t updates() const { return updates_; }

  /// Elements of the segment's flat buffer that this rank updates.
  Interval scope(SegmentIndex at) const;
  /// One state of one piece of what this rank owns.
  struct OwnedState {
    const Parameter* parameter = nullptr;
    StateKind kind = StateKind::master;
    Interval in_parameter;                    // elements of the flattened part that this rank holds
    size_t segment = 0, tile = 0, piece = 0;  // where it is kept
  };
  /// All states of the elements that this rank owns and counts for all: what a checkpoint writes.
  std::vector<OwnedState> owned() const;
  /// Their values ([piece] f32); 8-bit states are decoded, which loses nothing (see Quantize8).
  Tensor values(const OwnedState& state) const;
  /// Calls f(parameter, kind, tensor) with each tensor that this rank keeps of a state of the elements that it updates,
  /// as it is kept: codes and their scales are two. A master that is the parameter itself is left out.
  template <class F>
  void for_each_kept(F&& f) const {
    for (const SegmentState& state : states_)
      walk(
          state, {.writes = 0}, [](const Tile&) {},
          [&](const Tile& tile) {
            for (const TrainedPiece& piece : tile.of->pieces) {
              if (tile.of->keeps_masters) f(*piece.parameter, StateKind::master, tile.master(piece));
              for (const PieceState& each : piece.states) {
                f(*piece.parameter, each.kind, tile.values(each));
                if (!each.in_scales.empty()) f(*piece.parameter, each.kind, tile.scales(each));
              }
            }
          });
  }

  /// A line for the user on where states are, if that is a file; else "".
  std::string note() const { return store_->note(); }
  /// What the updates, loads and checkpoints so far have moved, but for what Residency moves.
  StateTraffic traffic() const;
  /// That of gradients in files beside the passes, which is a part of it.
  StateTraffic gradient_traffic() const { return reads_files_ ? reducer_.store()->traffic() : StateTraffic{}; }
  /// How long that took.
  StateTimes times() const;

 private:
  /// What is kept narrower than f32 is widened, updated, loaded and narrowed in stretches of about so many elements:
  /// they stay in the cache.
  static constexpr int64_t kStretch = 65536;

  using SegmentState = SegmentStates;
  using Tile = TileView;
  using RowSet = StateStore::RowSet;
  struct Rows {
    RowSet reads = StateStore::kAll, writes = StateStore::kAll;
  };
  /// stay: how many of its first tiles stay on the device.
  SegmentState make_state(SegmentIndex at, DType dtype, int64_t stay) const;
  /// How many of all tiles stay on the device.
  int64_t staying_tiles(const std::vector<SegmentIndex>& segments, DType dtype) const;
  const SegmentState& state_of(SegmentIndex at) const;
  void make_worker();
  /// Waits for what the worker was given.
  void wait_beside();
  /// Whether nothing but its own gradients stands before an update of the segment.
  bool may_be_early(const SegmentState& state) const;
  void update_early(const Tile& tile) const;
  /// The places of the segments that are updated.
  std::vector<size_t> finish_early();
  void prepare_delay();
  void make_room_for_delay();
  void drop_room_for_delay();
  std::vector<TrainedPiece> pieces_of(const SegmentState& state) const;
  /// Begins to write the segment's parameters where the update is made. reads: their present values too, if needed.
  void begin_update(const SegmentState& state, bool reads) const;
  void end_update(const SegmentState& state) const;
  /// The segment's parameters over the scope; while they are updated, if they have another home than the device.
  Tensor parameter_of(const SegmentState& state) const;

  /// The tiles of segments, with their uses of the store.
  struct Walk {
    std::vector<StateStore::Use> uses;
    std::vector<Tile> tiles;
    Rows rows;
    int64_t most = 0;  // elements of the largest
  };
  Walk plan_walk(std::span<const SegmentState* const> segments, const Rows& rows) const;
  std::vector<const SegmentState*> all_states() const;
  /// fetch(tile) before a tile is there, work(tile) when it is; for each tile in turn.
  /// Returns the seconds in which it waited for files.
  double run(Walk& walk, const std::function<void(const Tile&)>& fetch,
             const std::function<void(const Tile&)>& work) const;
  /// The same for each tile of the segments, beside whose device the host works.
  void walk(std::span<const SegmentState* const> segments, const Rows& rows,
            const std::function<void(const Tile&)>& fetch, const std::function<void(const Tile&)>& work) const;
  void walk(const SegmentState& segment, const Rows& rows, const std::function<void(const Tile&)>& fetch,
            const std::function<void(const Tile&)>& work) const {
    const SegmentState* const one = &segment;
    walk(std::span(&one, 1), rows, fetch, work);
  }
  /// What an update reads, over the scope.
  Tensor gradients_of(const SegmentState& state) const {
    return beside_ == Beside::step ? state.held : reducer_.reduced(state.at);
  }
  void fetch_gradients(const Tile& tile) const;
  /// True if they are in a file, from which the update reads them.
  bool reads_gradients(const SegmentState& state) const {
    return reads_files_ && beside_ != Beside::step && reducer_.stored(state.at);
  }
  /// The piece's gradient, where the update is made; after fetch_gradients().
  Tensor gradient_of(const Tile& tile, const TrainedPiece& piece) const;
  /// The piece's part of a tensor over the scope, where the update is made: brought by fetch, or to be sent by send().
  Tensor local(const Tile& tile, const TrainedPiece& piece, StateStore::Room room, const Tensor& scoped) const;
  /// Where the update writes parameters beside masters; undefined if it does not.
  Tensor parameter_copy(const Tile& tile, const TrainedPiece& piece) const;
  void send_parameter(const Tile& tile, const TrainedPiece& piece) const;
  /// What crosses for the tile; null if its update is made where gradients and parameters are.
  StateStore* transfers(const Tile& tile) const { return by_host_ && !tile.of->stays ? store_.get() : nullptr; }
  /// What the update of values computes with that are on the host, or on the device.
  const Context& context_of(const Tensor& values) const {
    if (beside_ != Beside::nothing) return worker_context_;
    return values.on_host() ? local_ : context_;
  }
  /// Room beside such values.
  Tensor workspace(const Tensor& beside, const Shape& shape, DType dtype) const;
  /// Room for so many f32 elements of a stretch: that which is held for an update beside the computation, or new.
  std::vector<Tensor> stretch_rooms(const Tensor& beside, size_t rooms, int64_t numel) const;
  /// Takes all the room that walk() needs, so that what is alive does not depend on when a thread gets to it.
  void hold_rooms(const Walk& walk);
  void release_rooms();

  UpdateSpan span_of(const Tile& tile, const TrainedPiece& piece, double lr, double gradient_scale) const;
  /// Calls f(span, interval of the piece) with an f32 parameter and f32 states; where they are kept narrower, stretch
  /// by stretch.
  void in_f32(const Tile& tile, const TrainedPiece& piece, const UpdateSpan& span,
              const std::function<void(const UpdateSpan&, Interval)>& f) const;
  void load(const StateSource& source, const Tile& tile, const TrainedPiece& piece) const;
  void load(const StateSource& source, const TrainedPiece& piece, const StateValues& state) const;
  void encode(const TrainedPiece& piece, const StateValues& state, Interval stretch, const Tensor& x) const;
  void decode(const StateValues& state, Interval stretch, const Tensor& x) const;
  /// Narrows x to `into`, elements `stretch` of the piece: at random, by (seed, parameter, kind, update, element).
  void narrow(const TrainedPiece& piece, StateKind kind, Interval stretch, const Tensor& x, const Tensor& into) const;

  /// Updates the piece; if its rule gives a direction first, writes that.
  void update_piece(const Tile& tile, const TrainedPiece& piece, double lr, double gradient_scale,
                    const Tensor& directions) const;
  void update_directed(const SegmentState& state, double lr, double gradient_scale);
  /// For each parameter of a segment, the sum of squares of its elements, and of its direction's.
  struct Squares {
    Tensor on_device, on_host;  // the second is the first where the host has access to the device
  };
  Squares make_squares(const SegmentState& state) const;
  void add_squares(const Tile& tile, const TrainedPiece& piece, const Tensor& directions, const Squares& sums) const;
  /// The sums over all ranks that hold parts of the parameters.
  Squares sum_squares(const SegmentState& state, const Squares& mine) const;
  void apply_lamb(const SegmentState& state, const Tensor& directions, const Squares& sums, double lr) const;
  void apply_muon(const SegmentState& state, const Tensor& directions, const Tensor& whole, double lr) const;
  /// Runs make(tile, piece) on each piece that has a direction; the operation's tensors but squares are set here.
  void apply(const SegmentState& state, const Tensor& directions,
             const std::function<ApplyDirection(const Tile&, const TrainedPiece&)>& make) const;

  Context context_;
  Context local_;  // that of updates by the host; the device's where that is the same
  Mesh mesh_;
  OptimizerOptions options_;
  OffloadOptions offload_;
  const std::vector<std::unique_ptr<Unit>>& units_;
  Reducer& reducer_;
  Residency& residency_;
  std::unique_ptr<StateStore> store_;
  bool by_host_ = false;              // updates of a device are made by the host
  bool reads_files_ = false;          // the reducer keeps gradients in a file
  std::vector<SegmentState> states_;  // one for each trained segment
  mutable double waited_ = 0;
  int64_t updates_ = 0, number_ = 0;  // that were made; that of the one which is computed, from 1 on

  /// What an update is computed beside: the next step, whose gradients and parameters it leaves alone, or the backward
  /// pass of its own step. Changed while nothing is under way.
  enum class Beside : uint8_t { nothing, backward, step } beside_ = Beside::nothing;
  /// An update beside the backward pass.
  struct Early {
    double lr = 0, gradient_scale = 1;
    std::vector<bool> begun = {};      // by segment: it is updated, or waits for update()
    std::vector<size_t> updated = {};  // segments
    Tensor square = {};                // f64 [1]
    std::atomic<bool> stopped = false;
    bool changed = false;  // the worker's: parameters or states
  };
  std::unique_ptr<Early> early_;
  std::unique_ptr<CompressedUpdate> compressed_;  // null unless the optimizer sends signs
  std::optional<PendingUpdate> pending_;
  Event arrived_;  // the gradients that were set aside are there
  Event done_;     // what the worker was given last
  Context worker_context_;
  std::vector<Tensor> held_rooms_;
  std::unique_ptr<Walk> served_;    // null unless it serves
  std::unique_ptr<Stream> worker_;  // null until there is work for it; the last member: its thread uses the others
};

}  // namespace nought
