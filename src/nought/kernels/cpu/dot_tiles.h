// Products of the small bf16 tiles of attention into fp32, by AVX512-BF16 dot products or AMX. They throw a DeviceError
// unless has_bf16_units().
#pragma once

#include <cstdint>

#include "nought/base/math.h"
#include "nought/kernels/cpu/gemm_bf16_pack.h"

namespace nought::cpu {

/// Columns of the panels that the right factors are packed in (gemm_bf16_pack.h).
inline constexpr int64_t kDotPanel = 64;

/// The number of elements of a packed [k, columns] factor.
constexpr int64_t packed_tile(int64_t k, int64_t columns) { return packed_panel(k, round_up(columns, kDotPanel)); }

/// c: [rows, columns] f32 [+]= a: [rows, k] times b: [k, columns], packed in panels of kDotPanel for packed_k >= k.
/// With AMX the rows of b behind k count as factors of zero: they must be finite.
void multiply_dots(const TileSession& session, const LeftFactor& a, const bf16_t* b, int64_t packed_k, int64_t k,
                   float* c, int64_t stride, int64_t rows, int64_t columns, bool accumulate);

/// Rounds `from` to `to`. Both are [rows, columns]; columns is a multiple of 16.
void round_tile(const float* from, int64_t rows, int64_t columns, int64_t stride, bf16_t* to);

}  // namespace nought::cpu
