// Conversion of element runs between dtypes, for files: the bytes need not be aligned.
//
// The 8-bit floats of files (OCP 8-bit Floating Point Specification 1.0) are no dtypes: nothing computes with them, and
// bf16 holds all their values.
#pragma once

#include <cstddef>
#include <cstdint>

#include "nought/tensor/dtype.h"

namespace nought {

/// Converts `count` elements: any float to any float (rounded once), any integer to any integer. ShapeError for a float
/// to an integer or back, and for an integer that the target cannot hold.
void convert_elements(DType from, const std::byte* source, DType to, std::byte* target, int64_t count);

/// E4M3 has no infinities and one NaN, E5M2 is the upper half of an IEEE binary16.
enum class Float8 : uint8_t { e4m3, e5m2 };

/// The value of a code, exactly.
bf16_t decode(Float8 format, uint8_t code);

/// Converts `count` codes to any float dtype, all of which hold them exactly. ShapeError for an integer dtype.
void convert_elements(Float8 from, const std::byte* source, DType to, std::byte* target, int64_t count);

}  // namespace nought
