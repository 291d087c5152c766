// Products of inputs that are rounded to 8 bits by codes: whole numbers are multiplied, and a code that is read costs a
// fraction of what decoding it to fp32 does.
//
// A row of inputs has a scale for each 32 neighbours, their largest magnitude over 127.
// Products of four codes are added as whole numbers, without an overflow, and then in fp32 along k: an element
// depends on its row, its column and k alone, as in every other product (gemm.h), and instruction sets agree to the
// bit.
#pragma once

#include "nought/kernels/cpu/gemm.h"

namespace nought::cpu {

/// Whether there are any for this CPU: AVX2 or AVX-512.
bool has_rounded_products();
/// Whether this CPU multiplies rounded inputs by such a B: codes of Q8_0 or blocks of GGUF, stored transposed.
bool multiplies_rounded(const Product& product);
/// Only where multiplies_rounded().
void multiply_rounded(const Product& product);

}  // namespace nought::cpu
