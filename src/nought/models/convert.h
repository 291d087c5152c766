// Conversion of element runs between dtypes, for files: the bytes need not be aligned.
#pragma once

#include <cstddef>
#include <cstdint>

#include "nought/tensor/dtype.h"

namespace nought {

/// Converts `count` elements: any float to any float (rounded once), any integer to any integer. ShapeError for a float
/// to an integer or back, and for an integer that the target cannot hold.
void convert_elements(DType from, const std::byte* source, DType to, std::byte* target, int64_t count);

}  // namespace nought
