// Matrix products by packed panels: what is multiplied, and which kernels there are for it.
//
// Design goals: every layout that training multiplies runs at the same fraction of the register-only peak on every
// instruction set; the bits of an element of C depend on its row of A, its column of B and k alone, not on m, n,
// threads or strides. gemm_blocks.h cuts a product into blocks, chunks of k and tiles, the same for all; what a tile is
// multiplied with is the affair of gemm_float (fp32 multiply-adds, whatever the operands are stored in) and gemm_bf16
// (dot products or tiles of bf16). few_rows.h has the products that are too flat for packing to pay.
#pragma once

#include "nought/kernels/ops/matmul.h"

namespace nought::cpu {

/// c: [m, n] (+)= op(a): [m, k] times op(b): [k, n] (+ bias: [n]). Leading dimensions are elements from one stored row
/// to the next; a transposed operand is stored as [k, m] or [n, k].
struct Product {
  MatMulSizes sizes;
  const void* a = nullptr;  // f32, bf16 or f16, as inputs says
  const void* b = nullptr;  // the same; unused with codes
  const void* bias = nullptr;
  void* c = nullptr;
  int64_t lda = 0, ldb = 0, ldc = 0;
  DType inputs = DType::f32;
  DType output = DType::f32;  // or inputs, rounded once
  bool transpose_a = false, transpose_b = false, accumulate = false;
  const Weight* codes = nullptr;  // a b of 8-bit codes, whose stored rows are ldb long
};

/// Multiplies by fp32 multiply-adds. 16-bit operands and codes are widened while they are packed.
void multiply_floats(const Product& product);

}  // namespace nought::cpu
