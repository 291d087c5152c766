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
/// Messages between pipeline stages that are neighbours, with every number of stages: they arrive in the order in which
/// they are sent, whatever their sizes, many at once, and in both directions while both ends wait. Throws Error.
void check_channels(Communicator& world, const Context& context);

}  // namespace nought::test
