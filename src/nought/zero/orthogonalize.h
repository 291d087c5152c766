// orthogonalize_parts(): Muon's matrices, whole, whatever the ranks hold of them.
//
// Design goals: each matrix is computed by one rank, so its bits are those of one rank; ranks that hold the parts of
// the same matrices each take another one. Non-goals: products of one matrix over several ranks.
#pragma once

#include <span>

#include "nought/autograd/unit.h"
#include "nought/comm/mesh.h"
#include "nought/kernels/kernels.h"
#include "nought/optim/options.h"

namespace nought {

/// What a rank holds of the direction of a parameter, flat.
struct DirectionPart {
  const Parameter* parameter = nullptr;
  Tensor values;
};

/// Replaces directions by their orthogonalised ones. ranks: those that hold the same parts; the matrices go round them,
/// from rank `turn` on. The parameters are cut along the same axes. Collective over the mesh.
void orthogonalize_parts(const Context& context, const Mesh& mesh, Communicator& ranks, const MuonOptions& muon,
                         std::span<const DirectionPart> parts, size_t turn);

}  // namespace nought
