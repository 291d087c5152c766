// How operands of bf16 products lie when the dot products read them: pairs along k, side by side.
//
// A packed panel of `width` columns of a [k, columns] operand is [k / 2][width][2]: one 32-bit word per pair. Panels
// follow each other; what lies beyond the operand's k or columns is zero. This file needs AVX-512 (F, BW, VL): call
// only where has_bf16_gemm().
#pragma once

#include <cstdint>

#include "nought/tensor/dtype.h"

namespace nought::cpu {

/// Elements that one pair-interleaved panel takes.
constexpr int64_t packed_panel(int64_t k, int64_t width) { return (k + 1) / 2 * 2 * width; }

/// from: [k, columns] with `stride` elements from row to row; width 8 or a multiple of 16.
void pack_rows(const bf16_t* from, int64_t stride, int64_t k, int64_t columns, int64_t width, bf16_t* to);
/// from: [columns, k], the transposed operand; width a multiple of 16.
void pack_columns(const bf16_t* from, int64_t stride, int64_t k, int64_t columns, int64_t width, bf16_t* to);

}  // namespace nought::cpu
