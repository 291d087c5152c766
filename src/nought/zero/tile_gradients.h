// TileGradients: what an update reads of gradients that are in a file: a room on the host for each tile under way.
#pragma once

#include <span>
#include <vector>

#include "nought/offload/offload_pool.h"
#include "nought/zero/state_tiles.h"

namespace nought {

class TileGradients {
 public:
  /// places: how many tiles are under way at once.
  TileGradients(const Context& context, const OffloadPool& files, DType dtype, size_t places);

  /// Begins a walk over tiles of at most so many elements.
  void begin(int64_t most) { most_ = most; }
  void end();
  /// Takes the rooms of all places now; after begin().
  void hold();

  /// Starts reading the gradients of a tile's pieces; `first` is the element of the segment that is the first in
  /// slot `number` of the pool.
  void fetch(size_t place, size_t number, std::span<const TrainedPiece> pieces, int64_t first);
  /// Waits for them. Returns the seconds that it took.
  double arrive(size_t place);
  /// Elements of the tile at a place.
  Tensor at(size_t place, Interval in_tile) const { return places_[place].room.flat(in_tile.begin, in_tile.end); }

 private:
  struct Place {
    Tensor room;
    Event read;
  };
  Context context_;
  const OffloadPool& files_;
  DType dtype_;
  std::vector<Place> places_;
  int64_t most_ = 0;
};

}  // namespace nought
