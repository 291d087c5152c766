// Converts runs of elements between dtypes, for files. The bytes need not be aligned.
//
// The 8-bit floats of files (OCP 8-bit Floating Point Specification 1.0) are no dtypes: no operation takes them, and
// bf16 holds all their values.
#pragma once

#include <cstddef>
#include <cstdint>

#include "nought/tensor/dtype.h"

namespace nought {

/// Converts `count` elements: any float to any float (rounded once), any integer to any integer. ShapeError for a float
/// to an integer or back, and for an integer that the target cannot hold.
void convert_elements(DType from, const std::byte* source, DType to, std::byte* target, int64_t count);

/// One element of any dtype as a number.
double number_at(DType dtype, const std::byte* at);

/// The 8-bit float formats that files may hold.
enum class Float8 : uint8_t {
  e4m3,  // 4 bits of exponent, 3 of mantissa; no infinities, one NaN
  e5m2,  // 5 bits of exponent, 2 of mantissa: the upper half of an IEEE binary16
  e8m0   // 8 bits of exponent, without a sign: a scale (OCP Microscaling Formats 1.0)
};

/// The exact value of a code.
bf16_t decode(Float8 format, uint8_t code);

/// Converts `count` codes to a float dtype. Every float dtype holds them exactly. ShapeError for an integer dtype.
void convert_elements(Float8 from, const std::byte* source, DType to, std::byte* target, int64_t count);

}  // namespace nought
