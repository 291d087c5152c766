// How operands of bf16 products lie when the dot products read them: pairs along k, side by side.
//
// A packed panel of `width` columns of a [k, columns] operand is [k / 2][width][2]: one 32-bit word per pair. Panels
// follow each other; k is padded to whole tiles of AMX, and what lies beyond the operand's k or columns is zero. This
// file needs AVX-512 (F, BW, VL): call only where has_bf16_units().
#pragma once

#include <cstdint>

#include "nought/base/math.h"
#include "nought/kernels/cpu/amx.h"

namespace nought::cpu {

/// The number of elements of one packed panel.
constexpr int64_t packed_panel(int64_t k, int64_t width) { return round_up(k, kTileDepth) * width; }

/// Packs `from`: [k, columns], `stride` elements from row to row. width is 8 or a multiple of 16.
void pack_rows(const bf16_t* from, int64_t stride, int64_t k, int64_t columns, int64_t width, bf16_t* to);
/// Packs `from`: [columns, k], the transposed operand. width is a multiple of 16.
void pack_columns(const bf16_t* from, int64_t stride, int64_t k, int64_t columns, int64_t width, bf16_t* to);

/// A left factor [rows, k]: element (i, p) lies at i * row_step + p / 2 * pair_step + p % 2. A factor that is stored by
/// rows has the steps (stride, 2); a panel of pack_rows(width) has (2, 2 * width).
struct LeftFactor {
  const bf16_t* data = nullptr;
  int64_t row_step = 0, pair_step = 2;
};

/// The number of elements of a left factor that is packed for the tiles of amx.h.
constexpr int64_t packed_left(int64_t rows, int64_t k) { return round_up(rows, kTileRows) * round_up(k, kTileDepth); }
/// to: kTileRows rows after the other, kLeftTiles for each kTileDepth of k. The tile of rows 16 to 31 is not written
/// where there are no such rows.
void pack_left(const LeftFactor& from, int64_t rows, int64_t k, bf16_t* to);

}  // namespace nought::cpu
