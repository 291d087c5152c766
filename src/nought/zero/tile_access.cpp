#include "nought/zero/tile_access.h"

#include "nought/offload/host_context.h"

namespace nought {

TileAccess::TileAccess(const Context& context, StateStore& store, const Reducer& reducer)
    : context_(context),
      local_(store.by_host() ? host_context(context) : context),
      store_(store),
      reducer_(reducer),
      reads_files_(reducer.store() && reducer.store()->in_file()) {}

void TileAccess::fetch_gradients(const TileView& tile) const {
  if (reads_gradients(tile.state))
    return store_.read_gradients(*reducer_.stored(tile.state.at), tile.of->pieces, tile.state.scope.begin,
                                 reducer_.dtype(), tile.place);
  const Tensor gradients = gradients_of(tile.state);
  StateStore* const moved = transfers(tile);
  if (!moved || gradients.on_host()) return;
  for (const TrainedPiece& piece : tile.of->pieces)
    moved->down(tile.state.part(piece, gradients),
                moved->room(tile.place, StateStore::Room::gradients, piece.in_tile, gradients.dtype()), tile.place);
}

Tensor TileAccess::gradient_of(const TileView& tile, const TrainedPiece& piece) const {
  if (reads_gradients(tile.state))
    return store_.room(tile.place, StateStore::Room::gradients, piece.in_tile, reducer_.dtype());
  return local(tile, piece, StateStore::Room::gradients, gradients_of(tile.state));
}

Tensor TileAccess::local(const TileView& tile, const TrainedPiece& piece, StateStore::Room room,
                         const Tensor& scoped) const {
  StateStore* const moved = transfers(tile);
  return moved && !scoped.on_host() ? moved->room(tile.place, room, piece.in_tile, scoped.dtype())
                                    : tile.state.part(piece, scoped);
}

Tensor TileAccess::parameter_copy(const TileView& tile, const TrainedPiece& piece) const {
  const bool differs = !transfers(tile) || tile.master(piece).dtype() != tile.parameter.dtype();
  if (!tile.of->keeps_masters || !differs) return {};
  return local(tile, piece, StateStore::Room::parameters, tile.parameter);
}

void TileAccess::write_parameter(const TileView& tile, const TrainedPiece& piece) const {
  const Tensor master = tile.master(piece);
  if (const Tensor copy = parameter_copy(tile, piece)) context_of(master).run(Cast{.x = master, .y = copy});
  send_parameter(tile, piece);
}

void TileAccess::send_parameter(const TileView& tile, const TrainedPiece& piece) const {
  StateStore* const moved = transfers(tile);
  if (!moved) return;
  const Tensor copy = parameter_copy(tile, piece), into = tile.state.part(piece, tile.parameter);
  if (!tile.parameter.on_host()) return moved->up(copy ? copy : tile.master(piece), into, tile.place);
  if (!copy) context_of(into).copy(tile.master(piece), into);
}

}  // namespace nought
