// Matrix products of bf16 by AMX tiles or AVX512-BF16 dot products: packed operands, tiles of C in registers, f32 sums.
//
// Design goals: every layout that training multiplies runs at the same fraction of the register-only peak; the bits of
// an element of C depend on its row of A, its column of B and k alone, not on m, n, threads or strides. Non-goals: few
// rows or a short k (packing would cost more than it gains), other dtypes.
#pragma once

#include "nought/kernels/cpu/amx.h"
#include "nought/kernels/isa.h"
#include "nought/kernels/ops/matmul.h"

namespace nought::cpu {

/// c: [m, n] (+)= op(a): [m, k] times op(b): [k, n] (+ bias: [n]). Leading dimensions are elements from one stored row
/// to the next; a transposed operand is stored as [k, m] or [n, k].
struct Bf16Product {
  MatMulSizes sizes;
  const bf16_t* a = nullptr;
  const bf16_t* b = nullptr;
  const bf16_t* bias = nullptr;
  void* c = nullptr;
  int64_t lda = 0, ldb = 0, ldc = 0;
  DType output = DType::f32;  // or bf16, rounded once
  bool transpose_a = false, transpose_b = false, accumulate = false;
};

/// Whether a product is large enough for it to pay.
constexpr bool is_for_bf16_gemm(const MatMulSizes& sizes) { return sizes.m >= 16 && sizes.n >= 16 && sizes.k >= 128; }
/// Computes the product on `unit`, or by dot products if that is none. DeviceError unless has_bf16_units().
void multiply(const Bf16Product& product, TileUnit unit);

}  // namespace nought::cpu
