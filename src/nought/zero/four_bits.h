// 4-bit codes as parameters: how a rank fills what it keeps of them, from dense values or from a file's codes.
#pragma once

#include <functional>

#include "nought/comm/mesh.h"
#include "nought/kernels/kernels.h"
#include "nought/zero/partition.h"
#include "nought/zero/state.h"

namespace nought {

/// What a rank keeps of a segment: the elements and where they are stored.
struct KeptSegment {
  Interval kept;
  Tensor stored;
};
struct KeptFourBits {
  KeptSegment codes, scales, nested;  // nested: nothing unless the segment has some
};

/// Calls f(block, its values) with each block of `elements` of the flattened global tensor, as the source has it; the
/// last block of a tensor may be shorter. Error that names a parameter with a value that is not finite.
void for_each_block(const StateSource& source, const Parameter& parameter, Interval elements, Memory& memory,
                    const std::function<void(Interval block, std::span<const float> values)>& f);

/// Fills what this rank keeps of a segment of 4-bit codes. Where the source has such codes they are taken as they are,
/// and else made of its values as bitsandbytes makes them: of the whole tensor, whatever part this rank keeps. Error
/// that names a parameter with a value that is not finite; ConfigError that names one whose blocks ranks cut, or whose
/// codes in the file are of another kind.
void load_four_bits(const Context& context, const Mesh& mesh, const StateSource& source, const Unit& unit,
                    size_t segment, const KeptFourBits& kept);

}  // namespace nought
