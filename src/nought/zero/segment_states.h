// SegmentStates: what a rank keeps of a segment's masters and optimizer states, in tiles. TileView: one of the tiles,
// as an update rule sees it.
#pragma once

#include <algorithm>
#include <functional>
#include <vector>

#include "nought/comm/communicator.h"
#include "nought/optim/options.h"
#include "nought/zero/state_tiles.h"

namespace nought {

struct SegmentStates {
  SegmentIndex at;
  Communicator* ranks = nullptr;             // that share it out
  bool early = false;                        // it may be updated overlapped with the backward pass
  bool undo = false;                         // and that can be undone
  bool writes = true;                        // this rank writes what it owns of it to files: see writes_for_all()
  Interval counted;                          // elements of the shard whose squares it adds up: see counted_for_all()
  Interval scope;                            // elements of the segment's flat buffer that this rank updates
  Tensor held, next;                         // over the scope, of an update put off: its gradients, what it writes
  std::vector<const Parameter*> parameters;  // all of the segment, also those outside the scope
  std::vector<ParameterRule> rules;          // theirs
  std::vector<StateTile> tiles;
  std::vector<size_t> stored;  // their numbers in the store

  /// The piece's part of a tensor over the scope.
  Tensor part(const TrainedPiece& piece, const Tensor& scoped) const {
    return scoped.flat(piece.piece.in_segment.begin - scope.begin, piece.piece.in_segment.end - scope.begin);
  }
  bool is_directed() const {
    return std::any_of(rules.begin(), rules.end(),
                       [](const ParameterRule& rule) { return gives_direction(rule.method); });
  }
  /// Whether ranks talk to each other for an update of it: then the rank's own thread makes it, at once.
  bool talks_to_ranks() const {
    return std::any_of(rules.begin(), rules.end(),
                       [](const ParameterRule& rule) { return nought::talks_to_ranks(rule.method); });
  }
  /// Whether the parameters are not what is updated.
  bool keeps_masters() const {
    return std::all_of(tiles.begin(), tiles.end(), [](const StateTile& tile) { return tile.keeps_masters; });
  }
};

/// One state of a piece that is there: values, or codes and their scales.
struct StateValues {
  StateKind kind;
  Tensor values, scales;
};

/// A tile that is being worked on; without rows while it is on its way.
struct TileView {
  const SegmentStates& state;
  const StateTile* of;
  Tensor parameter;  // over the scope: what the walk writes
  size_t place = 0;  // among the tiles under way
  const std::vector<Tensor>* rows = nullptr;

  /// What is updated: the master, or the parameter.
  Tensor master(const TrainedPiece& piece) const {
    if (!of->keeps_masters) return state.part(piece, parameter);
    return (*rows)[0].flat(piece.in_masters.begin, piece.in_masters.end);
  }
  /// Where its parameters are as they were before an update that may be undone; the tile keeps no masters.
  Tensor before(const TrainedPiece& piece) const {
    return (*rows)[*of->before()].flat(piece.in_tile.begin, piece.in_tile.end);
  }
  Tensor values(const PieceState& each) const {
    return (*rows)[each.values].flat(each.in_values.begin, each.in_values.end);
  }
  /// Undefined unless the values are codes.
  Tensor scales(const PieceState& each) const {
    return each.in_scales.empty() ? Tensor{} : (*rows)[each.scales].flat(each.in_scales.begin, each.in_scales.end);
  }
  StateValues at(const PieceState& each) const { return {each.kind, values(each), scales(each)}; }
};

/// By Unit, the sums of squares that square(state, room) writes into `room`, f64 [1], of each segment for which it
/// returns true. sums: f64 [units].
template <class Square>
void sum_squares(const Context& context, const std::vector<SegmentStates>& segments, const Tensor& sums,
                 const Tensor& room, const Square& square) {
  context.zero(sums);
  for (const SegmentStates& state : segments) {
    const auto unit = static_cast<int64_t>(state.at.unit);
    if (square(state, room)) context.run(AddTo{.x = room, .into = sums.flat(unit, unit + 1)});
  }
}

/// Calls work(tile) for each tile of some segments, when it is there.
using TileWork = std::function<void(const TileView&)>;
using WalkTiles = std::function<void(const TileWork& work)>;

}  // namespace nought
