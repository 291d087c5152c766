// Products of the small bf16 tiles of attention into fp32 by AMX. They throw a DeviceError unless has_bf16_units().
#pragma once

#include <cstdint>

#include "nought/base/math.h"
#include "nought/kernels/cpu/gemm_bf16_pack.h"

namespace nought::cpu {

/// Columns of the panels that the right factors are packed in (gemm_bf16_pack.h).
inline constexpr int64_t kDotPanel = 64;

/// The number of elements of a packed [k, columns] factor.
constexpr int64_t packed_tile(int64_t k, int64_t columns) { return packed_panel(k, round_up(columns, kDotPanel)); }

/// A right factor: pairs along k, kDotPanel columns side by side, `panel` elements from one panel to the next. The rows
/// from k to the next multiple of kTileDepth count as factors of zero: they must be finite.
struct RightFactor {
  const bf16_t* data = nullptr;
  int64_t panel = 0;
};
struct FloatTile {
  float* data = nullptr;
  int64_t stride = 0;
};

/// c: [rows, columns] [+]= a: [rows, k] times b: [k, columns]. The session must have a unit.
void multiply_tiles(const TileSession& session, const LeftFactor& a, const RightFactor& b, int64_t k,
                    const FloatTile& c, int64_t rows, int64_t columns, bool accumulate);

}  // namespace nought::cpu
