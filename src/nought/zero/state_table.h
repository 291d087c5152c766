// StateTable: where the masters and optimizer states of all that this rank updates are, in tiles, and how an update
// gets at a tile: its rows, its gradients, and where its parameters go.
//
// Masters and states may be offloaded (OffloadOptions). Where the host can not touch the device,
// an update is then made by the host: gradients flow down and parameters up, tile by tile (arXiv 2101.06840). From a
// file one tile is read while another is updated and a third is written (arXiv 2104.07857).
//
// Non-goals: what an update computes, and when.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "nought/comm/mesh.h"
#include "nought/optim/optimizer.h"
#include "nought/zero/reducer.h"
#include "nought/zero/residency.h"
#include "nought/zero/segment_states.h"
#include "nought/zero/state.h"
#include "nought/zero/state_store.h"

namespace nought {

class StateTable {
 public:
  StateTable(const Context& context, const Mesh& mesh, DType dtype, const OptimizerOptions& options,
             const std::vector<std::unique_ptr<Unit>>& units, Residency& residency, const Reducer& reducer,
             const OffloadOptions& offload);

  /// One for each trained segment. What is in them stays where it is.
  std::vector<SegmentStates>& segments() { return states_; }
  const std::vector<SegmentStates>& segments() const { return states_; }
  std::vector<const SegmentStates*> all() const;
  const SegmentStates& at(SegmentIndex at) const;
  /// Elements of the segment's flat buffer that this rank updates.
  Interval scope(SegmentIndex at) const;
  /// True if updates of a device are made by the host.
  bool by_host() const { return store_->by_host(); }
  const OffloadOptions& offload() const { return offload_; }
  StateStore& store() const { return *store_; }

  // --- walks ---
  using RowSet = StateStore::RowSet;
  struct Rows {
    RowSet reads = StateStore::kAll, writes = StateStore::kAll;
  };
  /// The tiles of segments, with their uses of the store.
  struct Walk {
    std::vector<StateStore::Use> uses;
    std::vector<TileView> tiles;
    Rows rows;
    int64_t most = 0;  // elements of the largest
  };
  Walk plan_walk(std::span<const SegmentStates* const> segments, const Rows& rows) const;
  /// fetch(tile) before a tile is there, work(tile) when it is; for each tile in turn. Returns the seconds in which it
  /// waited for files.
  double run(Walk& walk, const TileWork& fetch, const TileWork& work) const;
  /// Plans and runs the walk over each tile of the segments, beside whose device the host works.
  void walk(std::span<const SegmentStates* const> segments, const Rows& rows, const TileWork& fetch,
            const TileWork& work) const;
  void walk(const SegmentStates& segment, const Rows& rows, const TileWork& fetch, const TileWork& work) const {
    const SegmentStates* const one = &segment;
    walk(std::span(&one, 1), rows, fetch, work);
  }
  /// What a walk over tiles computes beside: the next step, whose gradients and parameters it leaves alone, or the
  /// backward pass of its own step.
  enum class Overlap : uint8_t { nothing, backward, step };
  /// From now on tiles of these segments are updated beside that, by what `by` computes with. Takes all the room that
  /// run() needs, so that what is alive does not depend on when a thread gets to it. Nothing is under way.
  Walk begin_overlap(Overlap with, const Context& by, std::span<const SegmentStates* const> segments);
  void end_overlap();
  Overlap overlap() const { return overlap_; }
  /// Number of the update which is computed, from 1 on: stochastic rounding depends on it.
  void set_number(int64_t number) { number_ = number; }
  int64_t number() const { return number_; }

  // --- a tile under way ---
  /// What an update reads, over the scope.
  Tensor gradients_of(const SegmentStates& state) const {
    return overlap_ == Overlap::step ? state.held : reducer_.reduced(state.at);
  }
  void fetch_gradients(const TileView& tile) const;
  /// The piece's gradient, where the update is made; after fetch_gradients().
  Tensor gradient_of(const TileView& tile, const TrainedPiece& piece) const;
  /// The piece's part of a tensor over the scope, where the update is made: brought by fetch, or to be sent by send().
  Tensor local(const TileView& tile, const TrainedPiece& piece, StateStore::Room room, const Tensor& scoped) const;
  /// Where the update writes parameters beside masters; undefined if it does not.
  Tensor parameter_copy(const TileView& tile, const TrainedPiece& piece) const;
  void send_parameter(const TileView& tile, const TrainedPiece& piece) const;
  /// What crosses for the tile; null if its update is made where gradients and parameters are.
  StateStore* transfers(const TileView& tile) const { return by_host() && !tile.of->stays ? store_.get() : nullptr; }
  /// What the update of values computes with that are on the host, or on the device.
  const Context& context_of(const Tensor& values) const {
    if (overlap_ != Overlap::nothing) return worker_context_;
    return values.on_host() ? local_ : context_;
  }
  /// Calls f(span, interval of the piece) with an f32 parameter and f32 states; where they are kept narrower, stretch
  /// by stretch.
  void in_f32(const TileView& tile, const TrainedPiece& piece, const UpdateSpan& span,
              const std::function<void(const UpdateSpan&, Interval)>& f) const;
  /// Begins to write the segment's parameters where the update is made. reads: their present values too, if needed.
  void begin_update(const SegmentStates& state, bool reads) const;
  /// The segment's parameters over the scope; while they are updated, if they are offloaded.
  Tensor parameter_of(const SegmentStates& state) const;

  // --- between updates ---
  /// Fills all states, and writes the parameters from the masters.
  void load(const StateSource& source);
  /// The masters in fp32: reads those that this rank owns of a segment, [shard], where parameters lie.
  void read_masters(SegmentIndex at, const Tensor& owned) const;
  /// Masters and parameters become keeps * themselves + (1 - keeps) * `scoped`, f32 over scope(at). The states stay.
  void mix_masters(SegmentIndex at, const Tensor& scoped, double keeps);
  /// One state of one piece of what this rank owns.
  struct OwnedState {
    const Parameter* parameter = nullptr;
    StateKind kind = StateKind::master;
    Interval in_parameter;                    // elements of the flattened part that this rank holds
    size_t segment = 0, tile = 0, piece = 0;  // where it is kept
  };
  /// All states of the elements that this rank owns and counts for all: what a checkpoint writes. gradients: those that
  /// are held, too.
  std::vector<OwnedState> owned(bool gradients) const;
  /// Their values ([piece] f32); 8-bit states are decoded, which loses nothing (see Quantize8).
  Tensor values(const OwnedState& state) const;

  /// A line for the user on where states are, if that is a file; else "".
  std::string note() const { return store_->note(); }
  StateTraffic traffic() const;
  /// The part of traffic() that gradients in files cause during the passes.
  StateTraffic gradient_traffic() const { return reads_files_ ? reducer_.store()->traffic() : StateTraffic{}; }
  StateTimes times() const;

 private:
  /// What is kept narrower than f32 is widened, updated, loaded and narrowed in stretches of about so many elements:
  /// they stay in the cache.
  static constexpr int64_t kStretch = 65536;

  /// stay: how many of its first tiles stay on the device.
  SegmentStates make_state(SegmentIndex at, DType dtype, int64_t stay) const;
  /// How many of all tiles stay on the device.
  int64_t staying_tiles(const std::vector<SegmentIndex>& segments, DType dtype) const;
  std::vector<TrainedPiece> pieces_of(const SegmentStates& state) const;
  void end_update(const SegmentStates& state) const;
  /// True if they are in a file, from which the update reads them.
  bool reads_gradients(const SegmentStates& state) const {
    return reads_files_ && overlap_ != Overlap::step && reducer_.stored(state.at);
  }
  /// Room beside such values.
  Tensor workspace(const Tensor& beside, const Shape& shape, DType dtype) const;
  /// Room for so many f32 elements of a stretch: that which is held for an update overlapped with the computation, or
  /// new.
  std::vector<Tensor> stretch_rooms(const Tensor& beside, size_t rooms, int64_t numel) const;
  void hold_rooms(const Walk& walk);
  void load(const StateSource& source, const TileView& tile, const TrainedPiece& piece) const;
  void load(const StateSource& source, const TrainedPiece& piece, const StateValues& state) const;
  void encode(const TrainedPiece& piece, const StateValues& state, Interval stretch, const Tensor& x) const;
  void decode(const StateValues& state, Interval stretch, const Tensor& x) const;
  /// Narrows x to `into`, elements `stretch` of the piece: at random, by (seed, parameter, kind, update, element).
  void narrow(const TrainedPiece& piece, StateKind kind, Interval stretch, const Tensor& x, const Tensor& into) const;

  Context context_;
  Context local_;           // that of updates by the host; the device's where that is the same
  Context worker_context_;  // that of updates overlapped with other work
  Mesh mesh_;
  OptimizerOptions options_;
  OffloadOptions offload_;
  const std::vector<std::unique_ptr<Unit>>& units_;
  const Reducer& reducer_;
  Residency& residency_;
  std::unique_ptr<StateStore> store_;
  bool reads_files_ = false;  // the reducer keeps gradients in a file
  std::vector<SegmentStates> states_;
  std::vector<Tensor> held_rooms_;
  Overlap overlap_ = Overlap::nothing;  // changed while nothing is under way
  int64_t number_ = 0;
  mutable double waited_ = 0;
};

}  // namespace nought
