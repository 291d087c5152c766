#include "nought/zero/whole_tensor.h"

#include <algorithm>

#include "nought/zero/placement.h"

namespace nought {
namespace {

/// What this rank would hold without the placement's last cut.
Tensor undo_last_cut(const Context& context, const Mesh& mesh, const Placement& placement, const Tensor& part) {
  const Grid& grid = mesh.grid();
  const int rank = mesh.world().rank();
  const Cut& last = placement.cuts.back();
  Placement longer = placement;
  longer.cuts.pop_back();
  const PlacedTensor cut(placement, grid), uncut(longer, grid);
  Communicator& group = ranks_along(last.axis, mesh);
  const int index = uncut.part_of(rank);
  const Shape shape = uncut.part(index).local();
  if (shape.numel() == 0) return part.reshape(shape);  // ranks along another axis have all of it
  if (last.owner && group.rank() == *last.owner) {
    group.wait(group.broadcast(part, *last.owner), *context.stream);
    return part;
  }
  const Tensor joined = context.empty(shape, part.dtype(), Category::workspace);
  if (last.owner) {
    group.wait(group.broadcast(joined, *last.owner), *context.stream);
    return joined;
  }
  const std::vector<int> members = grid.group(rank, Axes{last.axis});
  int64_t room = 0;  // parts may have different sizes
  for (const int member : members) room = std::max(room, cut.held_by(member).local().numel());
  const Tensor mine = context.zeros({room}, part.dtype(), Category::workspace);
  context.copy(part.flat(0, part.numel()), mine.flat(0, part.numel()));
  const auto count = static_cast<int64_t>(members.size());
  const Tensor all = context.empty({count * room}, part.dtype(), Category::workspace);
  group.wait(group.all_gather(mine, all), *context.stream);
  if (context.memory->is_virtual()) return joined;  // cuts of columns have a transfer for each row
  for (const Transfer& transfer : reshard(cut, uncut, index)) {
    const auto holder =
        std::find_if(members.begin(), members.end(), [&](int member) { return cut.part_of(member) == transfer.part; });
    const int64_t from = (holder - members.begin()) * room + transfer.from;
    context.copy(all.flat(from, from + transfer.size), joined.flat(transfer.to, transfer.to + transfer.size));
  }
  return joined;
}

}  // namespace

Tensor without_last_cuts(const Context& context, const Mesh& mesh, Placement placement, const Tensor& part,
                         size_t kept) {
  Tensor whole = part;
  for (; placement.cuts.size() > kept; placement.cuts.pop_back())
    whole = undo_last_cut(context, mesh, placement, whole);
  return whole;
}

Tensor whole_tensor(const Context& context, const Mesh& mesh, const Parameter& parameter, const Tensor& part) {
  return without_last_cuts(context, mesh, parameter.placement, part.reshape(parameter.shape), 0);
}

Tensor without_tiles(const Context& context, const GlobalTensor& tensor,
                     const std::function<Tensor(const GlobalTensor::Part&)>& tile_of) {
  Tensor joined;
  for (const GlobalTensor::Part& part : tensor.parts) {
    const Placement& placement = (*part).placement;
    const Tensor tile = tile_of(part);
    if (!tile) return {};
    if (!joined) joined = context.empty(placement.global, tile.dtype(), Category::workspace);
    const Placement uncut{.global = placement.global, .tile = placement.tile};
    for (const PartRun& run : PlacedTensor(uncut, Grid(GridSizes{})).part(0).runs())
      context.copy(tile.flat(run.local.begin, run.local.end), joined.flat(run.global.begin, run.global.end));
  }
  return joined;
}

}  // namespace nought
