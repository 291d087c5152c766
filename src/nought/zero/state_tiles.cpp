#include "nought/zero/state_tiles.h"

#include <algorithm>
#include <map>

namespace nought {

namespace {

/// `size` elements of the piece, from its element `begin` on.
TrainedPiece stretch_of(const TrainedPiece& piece, int64_t begin, int64_t size) {
  const auto within = [&](const Interval& whole) { return Interval{whole.begin + begin, whole.begin + begin + size}; };
  TrainedPiece stretch = piece;
  stretch.piece.in_parameter = within(piece.piece.in_parameter);
  stretch.piece.in_segment = within(piece.piece.in_segment);
  return stretch;
}

/// Fills one tile after the other. Pieces are cut at multiples of blocks, which keep their elements.
std::vector<StateTile> fill_tiles(const std::vector<TrainedPiece>& pieces, const TileRules& rules) {
  const int64_t block = std::max<int64_t>(rules.state_block, 1), most = std::max(rules.most, block);
  std::vector<StateTile> tiles;
  const auto room = [&] { return tiles.empty() ? 0 : most - tiles.back().numel; };
  for (const TrainedPiece& piece : pieces) {
    const int64_t size = piece.piece.in_segment.size();
    for (int64_t begin = 0; begin < size;) {
      const int64_t rest = size - begin;
      int64_t take = rest;
      if (rest > room() && (!rules.cuts_pieces || room() < block)) tiles.emplace_back();
      if (rest > room() && rules.cuts_pieces) take = room() / block * block;
      tiles.back().pieces.push_back(stretch_of(piece, begin, take));
      tiles.back().numel += take;
      begin += take;
    }
  }
  return tiles;
}

/// Gives every piece its elements of the rows.
void lay_out(StateTile& tile, Interval scope, const TileRules& rules) {
  const bool whole = rules.most == 0;
  const int64_t block = rules.state_block;
  int64_t used = 0;
  for (TrainedPiece& piece : tile.pieces) {
    piece.in_tile = {used, used + piece.piece.in_segment.size()};
    used = piece.in_tile.end;
    const auto& [begin, end] = piece.piece.in_segment;
    piece.in_masters = whole ? Interval{begin - scope.begin, end - scope.begin} : piece.in_tile;
  }
  tile.numel = used;
  const int64_t padding = whole ? scope.size() - used : 0;
  tile.keeps_masters = rules.masters && (!tile.stays || rules.staying_masters);
  if (tile.keeps_masters) tile.rows.push_back({.dtype = *rules.masters, .numel = used + padding});
  struct Rows {
    size_t values = 0, scales = 0;
  };
  std::map<StateKind, Rows> rows;
  for (const TrainedPiece& piece : tile.pieces)
    for (const StateKind kind : piece.rule.states()) rows[kind];
  for (auto& [kind, of] : rows) {
    of.values = tile.rows.size();
    tile.rows.push_back({.kind = kind, .dtype = block > 0 ? DType::u8 : rules.states});
    of.scales = tile.rows.size();
    if (block > 0) tile.rows.push_back({.kind = kind, .scales = true});
  }
  for (TrainedPiece& piece : tile.pieces)
    for (const StateKind kind : piece.rule.states()) {
      PieceState state{.kind = kind, .values = rows[kind].values, .scales = rows[kind].scales};
      const auto take = [&](size_t row, int64_t numel) {
        const int64_t begin = tile.rows[row].numel;
        tile.rows[row].numel += numel;
        return Interval{begin, begin + numel};
      };
      state.in_values = take(state.values, piece.in_tile.size());
      if (block > 0) state.in_scales = take(state.scales, ceil_div(piece.in_tile.size(), block));
      piece.states.push_back(state);
    }
  for (const auto& [kind, of] : rows) tile.rows[of.values].numel += padding;
  if (rules.before && !tile.keeps_masters) tile.rows.push_back({.before = true, .dtype = *rules.before, .numel = used});
}

}  // namespace

std::vector<StateTile> make_tiles(std::vector<TrainedPiece> pieces, Interval scope, const TileRules& rules) {
  std::vector<StateTile> tiles;
  if (rules.most > 0) {
    tiles = fill_tiles(pieces, rules);
  } else {
    tiles.emplace_back().pieces = std::move(pieces);
  }
  for (size_t i = 0; i < tiles.size(); ++i) {
    tiles[i].stays = rules.most == 0 || static_cast<int64_t>(i) < rules.stay;
    lay_out(tiles[i], scope, rules);
  }
  return tiles;
}

}  // namespace nought
