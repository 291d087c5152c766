// Codes as parameters: how a rank fills and reads what it keeps of them.
#pragma once

#include "nought/comm/mesh.h"
#include "nought/kernels/kernels.h"
#include "nought/zero/partition.h"
#include "nought/zero/state.h"

namespace nought {

/// Quantizes what `source` gives of elements `kept` of a segment of codes. stored: the codes of these elements and the
/// scales of their blocks. Takes one stretch at a time in f32. Error that names a parameter with a value that codes
/// cannot hold; ConfigError that names one whose blocks are cut over ranks.
void load_codes(const Context& context, const Mesh& mesh, const StateSource& source, const Unit& unit, size_t segment,
                Interval kept, const Weight& stored);

/// The values in a float dtype: a tensor of the codes' shape. Quantizing them in f32 gives the same values again.
Tensor decoded(const Context& context, const Weight& weight, DType dtype);

}  // namespace nought
