// What a mesh must do over whatever ranks it connects: run by thread ranks in the unit tests and by processes under
// mpirun.
#pragma once

#include <vector>

#include "nought/comm/mesh.h"

namespace nought::test {

/// Some meshes of that many ranks, with and without experts: of one axis, of two and of three.
std::vector<GridSizes> meshes_of(int ranks);
/// A sum in the group of every name has the bits of the sum over the ranks that the grid puts into it. Throws Error.
void check_mesh(Communicator& world, const Context& context, const GridSizes& sizes);

}  // namespace nought::test
