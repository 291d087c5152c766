// KeptStates: what a StateTable keeps, between updates: it is loaded, saved, and its masters are read and changed by
// others.
#pragma once

#include <functional>
#include <vector>

#include "nought/comm/mesh.h"
#include "nought/zero/residency.h"
#include "nought/zero/state.h"
#include "nought/zero/state_table.h"

namespace nought {

class KeptStates {
 public:
  /// What is referred to stays.
  KeptStates(const Context& context, const Mesh& mesh, Residency& residency, const StateTable& table)
      : context_(context), mesh_(mesh), residency_(residency), table_(table) {}

  /// Fills all states, and writes the parameters from the masters.
  void load(const StateSource& source) const;
  /// The masters in fp32: reads those that this rank owns of a segment, [shard], where parameters lie.
  void read_masters(SegmentIndex at, const Tensor& owned) const;
  /// Masters and parameters become keeps * themselves + (1 - keeps) * `scoped`, f32 over scope(at). The states stay.
  void mix_masters(SegmentIndex at, const Tensor& scoped, double keeps) const;

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
  /// Where the values of a state are, for whoever reads them while passes go on: they stay as they are until masters
  /// and states change (StateTable::protect_until).
  struct Source {
    enum class Place : uint8_t { device, host, file, parameters } place = Place::device;
    Tensor held = {};      // the values as they lie, if they are f32 in memory
    bool whole = false;    // they are codes: all are read at once
    bool passing = false;  // reading takes memory, or what passes use too: nobody reads them beside passes
    /// Writes elements of the piece to `into`, f32, by what `by` computes with.
    std::function<void(const Context& by, Interval elements, const Tensor& into)> read = {};
  };
  /// Called on the rank's own thread, between steps.
  Source source(const OwnedState& state) const;
  /// Their values ([piece] f32); 8-bit states are decoded, which loses nothing (see Quantize8).
  Tensor values(const OwnedState& state) const;

 private:
  Source source_of(const SegmentStates& segment, size_t tile, const TrainedPiece& piece, StateKind kind) const;
  /// Where the values of a row of a tile are.
  Source source_of_row(size_t stored, size_t row, Interval elements) const;
  void load(const StateSource& source, const TileView& tile, const TrainedPiece& piece) const;
  void load(const StateSource& source, const TrainedPiece& piece, const StateValues& state) const;

  Context context_;
  Mesh mesh_;
  Residency& residency_;
  const StateTable& table_;
};

}  // namespace nought
