// Weights of 8-bit codes on the CPU: decoding stretches of them, and products of a few rows with codes as they lie.
#pragma once

#include "nought/base/math.h"
#include "nought/kernels/ops/matmul.h"

namespace nought::cpu {

/// to[i] [+]= element begin + i of the weight, seen flat, rounded once. begin and count are multiples of kCodeBlock;
/// `to` is f32, bf16 or f16.
void decode(const Weight& weight, int64_t begin, int64_t count, DType dtype, void* to, bool add = false);

/// The most rows of a that multiply_few() is made for: with more it pays to decode once.
inline constexpr int64_t kFewRows = 15;
/// Whether multiply_few() takes the product.
bool is_for_few(const MatMul& op);
/// The product of a few rows with the transpose of codes, such as that of the next tokens of sequences. It reads each
/// code once, and sums within a block before it multiplies by the scale. The bits of an element of c depend on nothing
/// but its row of a and its row of b.
void multiply_few(const MatMul& op);

}  // namespace nought::cpu
