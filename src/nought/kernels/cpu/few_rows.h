// Products with so few rows that each element of B is used a few times only: B is read once, where it lies.
//
// Such products are those of the next tokens of sequences, and are bound by memory. The bits of an element of c depend
// on nothing but its row of a and its column of b; they differ from those of the large products in rounding.
#pragma once

#include "nought/kernels/cpu/gemm.h"

namespace nought::cpu {

/// The most rows of a: with more it pays to pack b.
inline constexpr int64_t kFewRows = 15;

/// m must be at most kFewRows.
void multiply_few(const Product& product);

}  // namespace nought::cpu
