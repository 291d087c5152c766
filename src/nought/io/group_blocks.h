// Blocks along rows that are made of the codes of a folder, whose scales and zero points lie in tensors of their own.
//
// A block is its scale, its zero point if there is one (a byte, a code as the others), and its codes, lowest bits
// first. Design goals: products read a folder's codes as they read the blocks of a GGUF file, and decode the values of
// packed_matrix.h to the bit. Non-goals: a file that has them.
#pragma once

#include <cstddef>

#include "nought/base/math.h"
#include "nought/io/weight_formats.h"

namespace nought {

struct PackedMatrix;

/// The format in memory of the rows of a matrix of a folder; one object for all that are alike, which lives as long as
/// the program. Null if they make no blocks: groups whose columns are no neighbours, codes that do not fill bytes.
const WeightFormat* group_format(const PackedMatrix& matrix);
/// Makes the blocks of a rectangle, row by row: whole ones of group_format(matrix).
void make_groups(const WeightFormat& format, const PackedMatrix& matrix, Interval rows, Interval columns,
                 std::byte* to);
/// The parts of a block: an element is (what its code stands for - zero) * scale.
struct GroupHead {
  float scale = 0, zero = 0;
  const std::byte* codes = nullptr;
};
GroupHead head_of(const WeightFormat& format, const std::byte* block);
/// Decodes some elements of a block.
void decode_group(const WeightFormat& format, const std::byte* block, Interval elements, float* values);

}  // namespace nought
