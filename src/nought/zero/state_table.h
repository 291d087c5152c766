// StateTable: where the masters and optimizer states of all that this rank updates are, in tiles, and the walks over
// them. How an update gets at a tile: TileAccess; at values that are kept narrower than f32: NarrowStates. What is done
// with them between updates: KeptStates.
//
// Masters and states may be offloaded (OffloadOptions). Where the host can not touch the device, an update is then made
// by the host, tile by tile (arXiv 2101.06840). From a file one tile is read while another is updated and a third is
// written (arXiv 2104.07857).
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
#include "nought/zero/narrow_states.h"
#include "nought/zero/reducer.h"
#include "nought/zero/residency.h"
#include "nought/zero/segment_states.h"
#include "nought/zero/state.h"
#include "nought/zero/state_store.h"
#include "nought/zero/tile_access.h"

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
  /// Others read masters and states until this is done: walks that write them wait for it. How it ends is no concern
  /// of theirs.
  void protect_until(Event read) { read_ = std::move(read); }
  /// Seconds in which the rank's own thread waited for that so far.
  double waited_for_readers() const { return waited_for_readers_; }

  // --- walks ---
  using RowSet = StateStore::RowSet;
  struct Rows {
    RowSet reads = StateStore::kAll, writes = StateStore::kAll;
    /// What a walk reads and writes: states; states, from which it writes their second version and what was before; or
    /// it reads alone that which undoes an update of parameters, masters or what was before.
    enum class Of : uint8_t { states, aside, before } of = Of::states;
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
  /// In a walk of Rows::Of::aside, before a tile is updated: keeps what undoing takes.
  void keep_before(const TileView& tile) const;
  /// Behind such a walk: what was written is what the segment's states are.
  void take_aside(const SegmentStates& state) const;
  /// Parameters become those of before that walk, whose states are not taken. masters: also those of tiles with
  /// masters, which an update writes anyway.
  void restore_parameters(const SegmentStates& state, bool masters) const;
  /// From now on tiles of these segments are updated overlapped with that, by what `by` computes with. Takes all the
  /// room that run() needs, so that what is alive does not depend on when a thread gets to it. Nothing is under way.
  Walk begin_overlap(TileAccess::Overlap with, const Context& by, std::span<const SegmentStates* const> segments);
  void end_overlap();
  /// Number of the update which is computed, from 1 on: stochastic rounding depends on it.
  void set_number(int64_t number) { narrow_.set_number(number); }
  int64_t number() const { return narrow_.number(); }

  /// How an update gets at a tile under way, and at values that are kept narrower than f32.
  const TileAccess& access() const { return access_; }
  const NarrowStates& narrow() const { return narrow_; }
  /// Begins to write the segment's parameters where the update is made. reads: their present values too, if needed.
  void begin_update(const SegmentStates& state, bool reads) const;
  /// The segment's parameters over the scope; while they are updated, if they are offloaded.
  Tensor parameter_of(const SegmentStates& state) const;

  /// A line for the user on where states are, if that is a file; else "".
  std::string note() const { return store_->note(); }
  StateTraffic traffic() const;
  /// The part of traffic() that gradients in files cause during the passes.
  StateTraffic gradient_traffic() const { return access_.reads_files() ? reducer_.store()->traffic() : StateTraffic{}; }
  StateTimes times() const;

 private:
  /// stay: how many of its first tiles stay on the device.
  SegmentStates make_state(SegmentIndex at, DType dtype, int64_t stay) const;
  /// How many of all tiles stay on the device.
  int64_t staying_tiles(const std::vector<SegmentIndex>& segments, DType dtype) const;
  std::vector<TrainedPiece> pieces_of(const SegmentStates& state) const;
  /// Whether nothing but its own gradients stands before an update of the segment.
  bool may_be_early(const SegmentStates& state) const;
  void end_update(const SegmentStates& state) const;
  void hold_rooms(const Walk& walk);
  void await_readers() const;

  Mesh mesh_;
  OptimizerOptions options_;
  OffloadOptions offload_;
  bool early_;  // an update may run overlapped with the backward pass where states are
  const std::vector<std::unique_ptr<Unit>>& units_;
  const Reducer& reducer_;
  Residency& residency_;
  std::unique_ptr<StateStore> store_;
  TileAccess access_;
  NarrowStates narrow_;
  std::vector<SegmentStates> states_;
  Event read_;
  mutable double waited_ = 0, waited_for_readers_ = 0;
};

}  // namespace nought
