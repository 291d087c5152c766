// StateTile: a stretch of a segment's masters and optimizer states that is moved and updated at once.
//
// Each kind of state of a tile lies in one row: the values of its pieces, one behind the other. A segment whose states
// stay on the device is one tile, and its pieces are whole. Otherwise pieces are cut where a tile is full; an element's
// update does not depend on it.
#pragma once

#include <optional>
#include <vector>

#include "nought/optim/optimizer.h"
#include "nought/zero/partition.h"

namespace nought {

/// What is kept of one kind of state of a tile: f32 or 16-bit values, or 8-bit codes; their scales have a row too.
struct StateRow {
  StateKind kind = StateKind::master;
  bool scales = false;
  bool before = false;  // parameters as they were before an update that may be undone
  DType dtype = DType::f32;
  int64_t numel = 0;
};

/// One state of a piece: its elements of a row of values, and of one of scales if these are codes.
struct PieceState {
  StateKind kind = StateKind::exp_avg;
  size_t values = 0, scales = 0;  // rows
  Interval in_values = {}, in_scales = {};
};

/// A stretch of one parameter that lies in one rank's shard and in one tile, and what is kept for it.
struct TrainedPiece {
  ParameterPiece piece;
  size_t place = 0;  // where the parameter is among those of the segment
  const Parameter* parameter = nullptr;
  int rank = 0;
  ParameterRule rule;
  Interval in_tile = {};     // of the tile's elements
  Interval in_masters = {};  // of row 0, if masters are kept
  std::vector<PieceState> states = {};
};

struct StateTile {
  std::vector<TrainedPiece> pieces;
  std::vector<StateRow> rows;  // row 0 has the masters, if they are kept; the last one, if any, what was before
  int64_t numel = 0;           // elements of the pieces
  bool stays = false;          // on the device
  bool keeps_masters = false;  // false: the parameter is what is updated

  /// The row of parameters as they were before an update that may be undone. Masters need none: they are states.
  std::optional<size_t> before() const {
    return rows.empty() || !rows.back().before ? std::nullopt : std::optional(rows.size() - 1);
  }
};

/// How tiles are made.
struct TileRules {
  std::optional<DType> masters = {};  // the dtype of masters that are kept apart from the parameters
  DType states = DType::f32;
  int64_t state_block = 0;           // > 0: states are codes with a scale for so many elements
  int64_t most = 0;                  // elements of a tile; 0: all pieces are one tile
  bool cuts_pieces = true;           // false: a piece is in one tile, whatever its size
  int64_t stay = 0;                  // so many of the first tiles stay on the device; all, if `most` is 0
  bool staying_masters = true;       // false: tiles that stay keep none
  std::optional<DType> before = {};  // the dtype of the row StateTile::before()
};

/// The tiles of a segment's pieces. scope: the elements of the segment that this rank updates; if they are one tile,
/// its rows have room for the padding, so that shards stay equal, and masters lie as the parameters do.
std::vector<StateTile> make_tiles(std::vector<TrainedPiece> pieces, Interval scope, const TileRules& rules);

}  // namespace nought
