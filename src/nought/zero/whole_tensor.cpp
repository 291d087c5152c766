#include "nought/zero/whole_tensor.h"

#include <algorithm>

#include "nought/zero/placement.h"

namespace nought {
namespace {

/// What this rank would hold without the placement's last cut, which is along the tensor axis: check_placement() lets
/// no other one pass.
Tensor undo_last_cut(const Context& context, const Mesh& mesh, const Placement& placement, const Tensor& part) {
  const Grid& grid = mesh.grid();
  const int rank = mesh.world().rank();
  Placement longer = placement;
  longer.cuts.pop_back();
  const PlacedTensor cut(placement, grid), uncut(longer, grid);
  const std::vector<int> members = grid.group(rank, Group::tensor);
  int64_t room = 0;  // parts may have different sizes
  for (const int member : members) room = std::max(room, cut.held_by(member).local().numel());
  const Tensor mine = context.zeros({room}, part.dtype(), Category::workspace);
  context.copy(part.flat(0, part.numel()), mine.flat(0, part.numel()));
  const auto count = static_cast<int64_t>(members.size());
  const Tensor all = context.empty({count * room}, part.dtype(), Category::workspace);
  Communicator& group = mesh.group(Group::tensor);
  group.wait(group.all_gather(mine, all), *context.stream);
  const int index = uncut.part_of(rank);
  const Tensor joined = context.empty(uncut.part(index).local(), part.dtype(), Category::workspace);
  for (const Transfer& transfer : reshard(cut, uncut, index)) {
    const auto holder =
        std::find_if(members.begin(), members.end(), [&](int member) { return cut.part_of(member) == transfer.part; });
    const int64_t from = (holder - members.begin()) * room + transfer.from;
    context.copy(all.flat(from, from + transfer.size), joined.flat(transfer.to, transfer.to + transfer.size));
  }
  return joined;
}

}  // namespace

Tensor whole_tensor(const Context& context, const Mesh& mesh, const Parameter& parameter, const Tensor& part) {
  Tensor whole = part.reshape(parameter.shape);
  for (Placement placement = parameter.placement; !placement.cuts.empty(); placement.cuts.pop_back())
    whole = undo_last_cut(context, mesh, placement, whole);
  return whole;
}

}  // namespace nought
