// Weights of codes on the CPU: decoding stretches of them.
#pragma once

#include "nought/base/math.h"
#include "nought/kernels/weight.h"

namespace nought::cpu {

/// to[i] [+]= element begin + i of the weight, seen flat, rounded once. `to` is f32, bf16 or f16. Of codes of 8 bits
/// begin and count are multiples of kCodeBlock.
void decode(const Weight& weight, int64_t begin, int64_t count, DType dtype, void* to, bool add = false);

}  // namespace nought::cpu
