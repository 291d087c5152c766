#include "nought/zero/orthogonalize.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "nought/zero/placement.h"
#include "nought/zero/whole_tensor.h"

namespace nought {
namespace {

/// A parameter's placement, whose last cuts go through its matrices.
struct MatrixPlacement {
  Placement all;                     // what the rank holds
  Placement matrices;                // the same without the cuts through matrices
  std::optional<Axis> through = {};  // the axis of those cuts

  explicit MatrixPlacement(const Parameter& parameter) : all(parameter.placement), matrices(all) {
    const auto leaves_whole = [&](const Cut& cut) { return cut.owner || cut.dim < all.global.rank() - 2; };
    const auto inner = std::stable_partition(all.cuts.begin(), all.cuts.end(), leaves_whole);
    matrices.cuts = {all.cuts.begin(), inner};
    if (inner == all.cuts.end()) return;
    through = all.cuts.back().axis;
    require(all.cuts.end() - inner == 1, "the matrices of {} are cut along several axes", parameter.name);
  }
};

/// A part, and where it belongs.
struct Placed {
  Tensor values;
  MatrixPlacement placement;
};

/// This rank's part of a matrix that it has whole.
void take_part(const Context& context, const Mesh& mesh, const Tensor& whole, const Placed& into) {
  const int rank = mesh.world().rank();
  const PlacedTensor matrices(into.placement.matrices, mesh.grid()), parts(into.placement.all, mesh.grid());
  for (const Transfer& transfer : reshard(matrices, parts, parts.part_of(rank)))
    context.copy(whole.flat(transfer.from, transfer.from + transfer.size),
                 into.values.flat(transfer.to, transfer.to + transfer.size));
}

/// As many parameters as ranks share them, or fewer: each rank puts all together and computes one.
void orthogonalize_shared(const Context& context, const Mesh& mesh, const MuonOptions& muon,
                          std::span<const Placed> parts) {
  std::vector<Tensor> wholes;
  for (const Placed& part : parts) {
    const Shape shape = PlacedTensor(part.placement.all, mesh.grid()).held_by(mesh.world().rank()).local();
    wholes.push_back(without_last_cuts(context, mesh, part.placement.all, part.values.reshape(shape),
                                       part.placement.matrices.cuts.size()));
  }
  Communicator& sharing = ranks_along(*parts.front().placement.through, mesh);
  const auto mine = static_cast<size_t>(sharing.rank());
  if (mine < wholes.size()) muon.orthogonalize(context, wholes[mine]);
  std::vector<Event> arrivals;
  for (size_t i = 0; i < wholes.size(); ++i) arrivals.push_back(sharing.broadcast(wholes[i], static_cast<int>(i)));
  for (const Event& arrival : arrivals) sharing.wait(arrival, *context.stream);
  for (size_t i = 0; i < wholes.size(); ++i) take_part(context, mesh, wholes[i], parts[i]);
}

void orthogonalize(const Context& context, const Mesh& mesh, const MuonOptions& muon, std::span<const Placed> parts) {
  if (parts.front().placement.through) return orthogonalize_shared(context, mesh, muon, parts);
  const Placed& alone = parts.front();
  const PlacedTensor placed(alone.placement.matrices, mesh.grid());
  muon.orthogonalize(context, alone.values.reshape(placed.held_by(mesh.world().rank()).local()));
}

}  // namespace

void orthogonalize_parts(const Context& context, const Mesh& mesh, Communicator& ranks, const MuonOptions& muon,
                         std::span<const DirectionPart> parts, size_t turn) {
  std::vector<Placed> placed;
  for (const DirectionPart& part : parts) {
    MatrixPlacement placement(*part.parameter);
    const PlacedTensor matrices(placement.matrices, mesh.grid());
    if (matrices.held_by(mesh.world().rank()).local().numel() == 0) continue;  // other ranks have all of it
    placed.push_back({part.values, std::move(placement)});
  }
  std::vector<Event> arrivals;
  for (size_t begin = 0, end = 0; begin < placed.size(); begin = end) {
    const std::optional<Axis> through = placed[begin].placement.through;
    const size_t most = through ? static_cast<size_t>(ranks_along(*through, mesh).size()) : 1;
    for (end = begin + 1; end < placed.size() && end - begin < most && placed[end].placement.through == through; ++end)
      ;
    const std::span<const Placed> batch = std::span(placed).subspan(begin, end - begin);
    const int owner = static_cast<int>(turn++ % static_cast<size_t>(ranks.size()));
    if (owner == ranks.rank()) orthogonalize(context, mesh, muon, batch);
    for (const Placed& part : batch)
      if (ranks.size() > 1 && part.values.numel() > 0) arrivals.push_back(ranks.broadcast(part.values, owner));
  }
  for (const Event& arrival : arrivals) ranks.wait(arrival, *context.stream);
}

}  // namespace nought
