// TileAccess: how an update gets at a tile of states: with what it computes, where its gradients are, and where its
// parameters go. Where the host can not touch the device, gradients flow down and parameters up, tile by tile.
#pragma once

#include <cstdint>

#include "nought/zero/reducer.h"
#include "nought/zero/segment_states.h"
#include "nought/zero/state_store.h"

namespace nought {

class TileAccess {
 public:
  /// store: that of the tiles. What is referred to stays.
  TileAccess(const Context& context, StateStore& store, const Reducer& reducer);

  /// What the work on tiles is overlapped with: the next step, whose gradients and parameters they leave alone, or the
  /// backward pass of their own step.
  enum class Overlap : uint8_t { nothing, backward, step };
  /// From now on tiles are updated overlapped with that, by what `by` computes with. Nothing is under way.
  void begin_overlap(Overlap with, const Context& by) { overlap_ = with, worker_context_ = by; }
  void end_overlap() { overlap_ = Overlap::nothing; }
  Overlap overlap() const { return overlap_; }

  /// What the update of values computes with that are on the host, or on the device.
  const Context& context_of(const Tensor& values) const {
    if (overlap_ != Overlap::nothing) return worker_context_;
    return values.on_host() ? local_ : context_;
  }
  /// What an update reads, over the scope.
  Tensor gradients_of(const SegmentStates& state) const {
    return overlap_ == Overlap::step ? state.held : reducer_.reduced(state.at);
  }
  /// True if gradients are in files.
  bool reads_files() const { return reads_files_; }
  /// True if those of the segment are, from which the update reads them.
  bool reads_gradients(const SegmentStates& state) const {
    return reads_files_ && overlap_ != Overlap::step && reducer_.stored(state.at);
  }
  void fetch_gradients(const TileView& tile) const;
  /// The piece's gradient, where the update is made; after fetch_gradients().
  Tensor gradient_of(const TileView& tile, const TrainedPiece& piece) const;
  /// What crosses for the tile; null if its update is made where gradients and parameters are.
  StateStore* transfers(const TileView& tile) const { return store_.by_host() && !tile.of->stays ? &store_ : nullptr; }
  /// The piece's part of a tensor over the scope, where the update is made: brought by fetch, or to be sent by send().
  Tensor local(const TileView& tile, const TrainedPiece& piece, StateStore::Room room, const Tensor& scoped) const;
  /// Where the update writes parameters beside masters; undefined if it does not.
  Tensor parameter_copy(const TileView& tile, const TrainedPiece& piece) const;
  void send_parameter(const TileView& tile, const TrainedPiece& piece) const;
  /// The parameter becomes the piece's master; the tile keeps masters.
  void write_parameter(const TileView& tile, const TrainedPiece& piece) const;

 private:
  Context context_;
  Context local_;           // that of updates by the host; the device's where that is the same
  Context worker_context_;  // that of updates overlapped with other work
  StateStore& store_;
  const Reducer& reducer_;
  bool reads_files_;
  Overlap overlap_ = Overlap::nothing;  // changed while nothing is under way
};

}  // namespace nought
