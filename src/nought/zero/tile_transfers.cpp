#include "nought/zero/tile_transfers.h"

#include <utility>

#include "nought/base/timing.h"

namespace nought {

void TileTransfers::begin(int64_t most) {
  most_ = most;
  if (copies_) copies_->follow(context_.stream->record());
}

void TileTransfers::end() {
  for (Place& place : places_) place.rooms = {};  // what is on its way keeps its own
  join();
}

Tensor TileTransfers::room(size_t place, Room room, Interval elements, DType dtype) {
  Tensor& whole = places_[place].rooms[static_cast<size_t>(room)];
  if (!whole || whole.dtype() != dtype)
    whole = gradients_ && room == Room::gradients
                ? gradients_->host_room(most_, dtype, Category::workspace)
                : Tensor::empty(*context_.memory, {most_}, dtype, Category::workspace, context_.memory->host_pool());
  return whole.flat(elements.begin, elements.end);
}

void TileTransfers::read(OffloadPool::Slot slot, std::span<const TrainedPiece> pieces, int64_t first, DType dtype,
                         size_t place) {
  // Pieces follow one another in the tile, and most of them in the file: one read takes these.
  std::vector<OffloadPool::Part> parts;
  int64_t begin = 0;
  for (const TrainedPiece& piece : pieces) {
    const int64_t here = piece.piece.in_segment.begin - first;
    if (parts.empty() || parts.back().first + parts.back().tensor.numel() != here) {
      parts.push_back({slot, here, {}});
      begin = piece.in_tile.begin;
    }
    parts.back().tensor = room(place, Room::gradients, {begin, piece.in_tile.end}, dtype);
  }
  places_[place].read = gradients_->read(parts);
}

double TileTransfers::arrive(size_t place) {
  places_[place].down.wait();
  return seconds_of([&] { std::exchange(places_[place].read, {}).wait(); });
}

}  // namespace nought
