// Blocks of a file as parameters: how a rank fills what it keeps of them.
#pragma once

#include "nought/comm/mesh.h"
#include "nought/kernels/kernels.h"
#include "nought/zero/four_bits.h"

namespace nought {

/// Fills what this rank keeps of a segment of blocks with the bytes that the source has. ConfigError that names a
/// parameter whose blocks ranks cut, or which the source has in another format.
void load_blocks(const Context& context, const Mesh& mesh, const StateSource& source, const Unit& unit, size_t segment,
                 const KeptSegment& kept);

}  // namespace nought
