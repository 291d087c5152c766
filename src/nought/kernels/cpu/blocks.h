// Blocks of a file on the CPU: decoding them in registers.
#pragma once

#include <cstddef>

#include "nought/base/math.h"
#include "nought/io/weight_formats.h"
#include "nought/tensor/dtype.h"

namespace nought::cpu {

/// to[i] [+]= element begin + i of rows of blocks of one format, seen flat, rounded once to `dtype`: f32, bf16 or f16.
/// The values are those of decode_blocks(), to the bit.
void decode_stretch(const WeightFormat& format, const std::byte* bytes, Interval elements, DType dtype, std::byte* to,
                    bool add);

}  // namespace nought::cpu
