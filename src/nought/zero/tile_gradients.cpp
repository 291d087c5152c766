#include "nought/zero/tile_gradients.h"

#include <utility>

#include "nought/base/timing.h"

namespace nought {

TileGradients::TileGradients(const Context& context, const OffloadPool& files, DType dtype, size_t places)
    : context_(context), files_(files), dtype_(dtype), places_(places) {}

void TileGradients::end() {
  for (Place& place : places_) place = {};
}

void TileGradients::hold() {
  for (Place& place : places_)
    if (!place.room)
      place.room = aligned(*context_.memory, {most_}, dtype_, Category::workspace, context_.memory->host_pool());
}

void TileGradients::fetch(size_t place, size_t number, std::span<const TrainedPiece> pieces, int64_t first) {
  hold();
  // Pieces follow one another in the tile, and most of them in the file: one read takes these.
  std::vector<OffloadPool::Part> parts;
  int64_t begin = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const int64_t here = pieces[i].piece.in_segment.begin - first;
    if (parts.empty() || parts.back().first + parts.back().tensor.numel() != here) {
      parts.push_back({number, here, {}});
      begin = pieces[i].in_tile.begin;
    }
    parts.back().tensor = at(place, {begin, pieces[i].in_tile.end});
  }
  places_[place].read = files_.read(parts);
}

double TileGradients::arrive(size_t place) {
  return seconds_of([&] { std::exchange(places_[place].read, {}).wait(); });
}

}  // namespace nought
