// Matrix products of bf16 by AMX tiles or AVX512-BF16 dot products: packed pairs along k, f32 sums.
#pragma once

#include "nought/kernels/cpu/amx.h"
#include "nought/kernels/cpu/gemm.h"
#include "nought/kernels/isa.h"

namespace nought::cpu {

/// Computes the product of bf16 inputs on `unit`, or by dot products if that is none. DeviceError unless
/// has_bf16_units().
void multiply_pairs(const Product& product, TileUnit unit);

}  // namespace nought::cpu
