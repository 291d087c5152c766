// Products with so few rows that each element of B is used a few times only: B is read once, where it lies.
//
// Such products are those of the next tokens of sequences, and are bound by memory. The bits of an element of C are
// those that it has in a large product: a sequence that is generated is computed as it is when it is trained on. Codes
// of 8 bits are the exception (few_rows_codes.cpp).
#pragma once

#include "nought/kernels/cpu/gemm.h"

namespace nought::cpu {

/// The most rows of A: with more it pays to pack B in large blocks.
inline constexpr int64_t kFewRows = 15;

/// m must be at most kFewRows. Not for AMX, whose tiles add in another order.
void multiply_few(const Product& product);

/// multiply_few() of a B of 8-bit codes that is stored transposed.
void multiply_few_by_codes(const Product& product);

}  // namespace nought::cpu
