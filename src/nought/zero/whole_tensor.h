// whole_tensor(): the global tensor of a parameter from the parts that ranks hold: for exports and reports.
#pragma once

#include <functional>

#include "nought/autograd/unit.h"
#include "nought/comm/mesh.h"
#include "nought/kernels/kernels.h"

namespace nought {

/// part: what this rank holds of the parameter, or of its gradient. Returns the global tensor or, of a tile, all of the
/// tile: the part itself, shaped, where nothing cuts it. All ranks call it together.
Tensor whole_tensor(const Context& context, const Mesh& mesh, const Parameter& parameter, const Tensor& part);
/// The global tensor from those of its tiles, which `tile_of` gives one after another.
Tensor without_tiles(const Context& context, const GlobalTensor& tensor,
                     const std::function<Tensor(const GlobalTensor::Part&)>& tile_of);

/// Joins the placement's last cuts: what this rank would hold if there were only the first `kept` of them. part: in its
/// shape.
Tensor without_last_cuts(const Context& context, const Mesh& mesh, Placement placement, const Tensor& part,
                         size_t kept);

}  // namespace nought
